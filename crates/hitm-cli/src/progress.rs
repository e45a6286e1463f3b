//! How far a command is: a bar on a terminal, a line every ten seconds elsewhere.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hitm_machine::Clock;
use hitm_memory::Span;
use indicatif::{HumanDuration, ProgressBar, ProgressStyle};

use crate::terminal::visible;

/// Between two lines where stderr is no terminal: few enough for a log of hours.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Between two updates of the bar.
const BAR_EVERY: Duration = Duration::from_millis(500);

/// Steps of the bar per run.
const STEPS: f64 = 1_000.0;

/// Shows how far a command is, until it is dropped.
pub(crate) struct Progress {
    shared: Arc<Shared>,
    shown_by: Option<JoinHandle<()>>,
    bar: ProgressBar,
}

struct Shared {
    state: Mutex<State>,
    /// Notified when the command is over.
    over: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct State {
    begun: Instant,
    runs: usize,
    finished: usize,
    /// What all runs take, where that is known beforehand.
    whole: Option<Duration>,
    running: Vec<Arc<Running>>,
    /// The name of the run that began last.
    last: String,
    is_over: bool,
}

/// A run under way.
struct Running {
    clock: Arc<Clock>,
    length: Option<Span>,
}

impl Running {
    /// The part of the simulated time that is done, from 0 to 1.
    fn part(&self) -> f64 {
        let length = self.length.map_or(f64::INFINITY, Span::as_secs_f64);
        (self.clock.now().as_secs_f64() / length).min(1.0)
    }
}

impl State {
    /// Runs that are done, with the parts of those under way.
    fn done(&self) -> f64 {
        self.finished as f64 + self.running.iter().map(|run| run.part()).sum::<f64>()
    }

    /// `3 of 21 runs, 17 %, 40 seconds left: all on gnr-2x120`, after `elapsed`.
    fn text(&self, elapsed: Duration) -> String {
        let part = self.done() / self.runs.max(1) as f64;
        // Before a hundredth is done, an estimate from it is a guess.
        let measured = (part >= 0.01).then(|| elapsed.mul_f64((1.0 - part).max(0.0) / part));
        let left = measured.or_else(|| self.whole.map(|whole| whole.saturating_sub(elapsed)));
        let left = left.map_or_else(String::new, |left| format!(", {} left", HumanDuration(left)));
        let percent = (100.0 * part).floor();
        format!("{} of {} runs, {percent} %{left}: {}", self.finished, self.runs, visible(&self.last))
    }
}

impl Progress {
    /// Begins to show the progress of `runs` runs.
    pub(crate) fn new(runs: usize) -> Self {
        // Draws to stderr, and only when that is a terminal.
        let bar = ProgressBar::new(0);
        if bar.is_hidden() {
            return Self::shown(runs, LINE_EVERY, bar, |_, text| {
                // Nothing can be done when stderr is closed.
                let _closed = writeln!(io::stderr(), "hitm: {text}");
            });
        }
        let style = ProgressStyle::with_template("{bar:20} {wide_msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let drawn = bar.clone();
        Self::shown(runs, BAR_EVERY, bar, move |state, text| {
            drawn.set_length((state.runs as f64 * STEPS) as u64);
            drawn.set_position((state.done() * STEPS) as u64);
            drawn.set_message(text);
        })
    }

    /// Gives the state and its text to `show` after each `every`, on a thread of its own.
    fn shown(runs: usize, every: Duration, bar: ProgressBar, show: impl Fn(&State, String) + Send + 'static) -> Self {
        let begun = Instant::now();
        let state =
            State { begun, runs, finished: 0, whole: None, running: Vec::new(), last: String::new(), is_over: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), over: Condvar::new() });
        let watched = shared.clone();
        let shown_by = thread::spawn(move || {
            let mut state = watched.state();
            while !state.is_over {
                let waited = watched.over.wait_timeout_while(state, every, |state| !state.is_over);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                if !state.is_over {
                    show(&state, state.text(state.begun.elapsed()));
                }
            }
        });
        Self { shared, shown_by: Some(shown_by), bar }
    }

    /// Says that all runs take about this time: shown until a part of them tells more.
    pub(crate) fn expect_time(&self, whole: Duration) {
        self.shared.state().whole = Some(whole);
    }

    /// Counts `runs` more than were expected.
    pub(crate) fn expect_more(&self, runs: usize) {
        self.shared.state().runs += runs;
    }

    /// Counts `runs` fewer than were expected.
    pub(crate) fn expect_fewer(&self, runs: usize) {
        let mut state = self.shared.state();
        state.runs = state.runs.saturating_sub(runs);
    }

    /// Says that `done` of `steps` steps are done and that `what` begins.
    pub(crate) fn at(&self, done: usize, steps: usize, what: &str) {
        let mut state = self.shared.state();
        (state.finished, state.runs) = (done, steps);
        what.clone_into(&mut state.last);
    }

    /// Begins a run, which ends when the result is dropped. A run that simulates `length` shows its
    /// clock; of others, only the end is shown.
    pub(crate) fn begin(&self, name: String, length: Option<Span>) -> Begun<'_> {
        let run = Arc::new(Running { clock: Arc::default(), length });
        let mut state = self.shared.state();
        state.running.push(run.clone());
        state.last = name;
        Begun { progress: self, run }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.shared.state().is_over = true;
        self.shared.over.notify_all();
        if let Some(thread) = self.shown_by.take() {
            // A panic there has been reported, and takes nothing from the results.
            let _panicked = thread.join();
        }
        self.bar.finish_and_clear();
    }
}

/// A run that has begun.
pub(crate) struct Begun<'a> {
    progress: &'a Progress,
    run: Arc<Running>,
}

impl Begun<'_> {
    /// The clock of the run's machine.
    pub(crate) fn clock(&self) -> &Arc<Clock> {
        &self.run.clock
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        let mut state = self.progress.shared.state();
        state.running.retain(|run| !Arc::ptr_eq(run, &self.run));
        state.finished += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_line_counts_simulated_time() {
        let (sender, lines) = mpsc::channel();
        let send = move |_: &State, text| sender.send(text).unwrap_or(());
        let progress = Progress::shown(4, Duration::from_millis(1), ProgressBar::hidden(), send);
        let until = |wanted: &str| {
            let mut lines = lines.iter().take(10_000);
            assert!(lines.any(|line: String| line.ends_with(wanted)), "no line ends in `{wanted}`");
        };
        drop(progress.begin("first".to_owned(), None));
        until("first");
        let second = progress.begin("sec\u{1b}ond".to_owned(), Some(Span::from_micros(8)));
        until("sec\\u{1b}ond");
        second.clock().set(Span::from_micros(4).as_picos());
        let state = progress.shared.state();
        // One and a half of four, in six seconds.
        let text = state.text(Duration::from_secs(6));
        assert_eq!(text, "1 of 4 runs, 37 %, 10 seconds left: sec\\u{1b}ond");
        drop(state);
        // A run may take longer than its measured stretch.
        second.clock().set(Span::from_micros(80).as_picos());
        assert_eq!(progress.shared.state().done(), 2.0);
        drop(second);
        assert_eq!(progress.shared.state().done(), 2.0);
    }

    #[test]
    fn nothing_is_said_of_the_time_left_at_the_start() {
        let progress = Progress::new(0);
        progress.at(0, 300, "caches");
        let text = progress.shared.state().text(Duration::from_secs(9));
        assert_eq!(text, "0 of 300 runs, 0 %: caches");
        // Unless it is known from a run before.
        progress.expect_time(Duration::from_secs(600));
        let text = progress.shared.state().text(Duration::from_secs(9));
        assert_eq!(text, "0 of 300 runs, 0 %, 10 minutes left: caches");
    }
}
