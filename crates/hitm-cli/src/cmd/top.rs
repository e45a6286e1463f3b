//! `hitm top`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use hitm_memory::Span;
use hitm_report::columns::{Align, Columns};
use serde::Serialize;

use crate::args::span_above_zero;
use crate::failure::Failure;
use crate::terminal::{fitted, width};
use crate::{interrupt, print, print_as_it_is};

/// Show what the runtime of a running process does: tasks, queues, wakeup latencies.
///
/// The process shows its metrics at a Unix socket: `Builder::expose_metrics` of the crate `hitm`.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hitm top /run/service.metrics\n  hitm top /run/service.metrics --every 5s\n  hitm top page.txt --once --json       a page that was saved"
)]
pub(crate) struct Top {
    /// The socket, or a file with the page that is read there.
    path: PathBuf,
    /// Time between two looks.
    #[arg(long, value_name = "T", default_value = "1s", value_parser = span_above_zero, allow_hyphen_values = true)]
    every: Span,
    /// Look once, and show the counts since the runtime began.
    #[arg(long)]
    once: bool,
    /// Print an object of JSON for each look.
    #[arg(long)]
    json: bool,
}

/// The largest page that is read.
const PAGE_MAX: u64 = 16 << 20;
/// How long the process may take to answer.
#[cfg(unix)]
const PATIENCE: Duration = Duration::from_secs(5);

impl Top {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let mut before = Counts::default();
        let mut seconds = None;
        let mut last = Instant::now();
        loop {
            let now = self.look()?;
            let shown = now.since(&before, seconds);
            if self.json {
                let line = serde_json::to_string(&shown).map_err(|error| Failure::new(error.to_string()))?;
                print(&format!("{line}\n"))?;
            } else {
                let text = fitted(&shown.text());
                if !self.once && io::stdout().is_terminal() {
                    // To the corner, and clear.
                    print_as_it_is(b"\x1b[H\x1b[2J")?;
                }
                print(&text)?;
            }
            if self.once {
                return Ok(());
            }
            interrupt::keeps("nothing is watched any more".to_owned());
            thread::sleep(Duration::from_nanos(self.every.as_picos() / 1_000));
            seconds = Some(last.elapsed().as_secs_f64());
            last = Instant::now();
            before = now;
        }
    }

    /// Reads the page.
    fn look(&self) -> Result<Counts, Failure> {
        let name = self.path.display();
        let page = read(&self.path).map_err(|error| {
            Failure::new(format!(
                "`{name}`: {error}; give the socket of a running process, which `Builder::expose_metrics` makes"
            ))
        })?;
        Counts::parse(&page).map_err(|why| {
            Failure::new(format!("`{name}`: {why}; give a page that `Builder::expose_metrics` of `hitm` shows"))
        })
    }
}

#[cfg(unix)]
fn open(path: &Path) -> io::Result<Box<dyn Read>> {
    use std::os::unix::fs::FileTypeExt;
    use std::os::unix::net::UnixStream;
    if !fs::metadata(path)?.file_type().is_socket() {
        return Ok(Box::new(File::open(path)?));
    }
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(Box::new(stream))
}

#[cfg(not(unix))]
fn open(path: &Path) -> io::Result<Box<dyn Read>> {
    fs::metadata(path)?;
    Ok(Box::new(File::open(path)?))
}

fn read(path: &Path) -> io::Result<String> {
    let mut page = Vec::new();
    open(path)?.take(PAGE_MAX).read_to_end(&mut page)?;
    String::from_utf8(page).map_err(|_| io::Error::other("it is no text"))
}

/// A histogram as the page has it: how many were at most so many microseconds, in all.
#[derive(Clone, Debug, Default)]
struct Durations {
    /// By end in microseconds, without those above the last end.
    up_to: Vec<(u64, f64)>,
    count: f64,
}

/// The counts of a class of tasks.
#[derive(Clone, Debug, Default)]
struct ClassCounts {
    queued: f64,
    wakeups: Durations,
    polls: Durations,
}

/// A page.
#[derive(Clone, Debug, Default)]
struct Counts {
    /// By name without the prefix: values without labels.
    plain: BTreeMap<String, f64>,
    /// In the page's order: the most urgent one first.
    classes: Vec<(String, ClassCounts)>,
    /// By name: how often, and for how many seconds, a limit stopped the group.
    groups: BTreeMap<String, [f64; 2]>,
}

/// What is shown of a class.
#[derive(Debug, Serialize)]
struct ShownClass {
    class: String,
    waiting: f64,
    wakeups: f64,
    wakeup_us: [Option<u64>; 2],
    polls: f64,
    poll_us: [Option<u64>; 2],
}

#[derive(Debug, Serialize)]
struct ShownGroup {
    group: String,
    throttled: f64,
    throttled_seconds: f64,
}

/// What is shown: gauges as they are, counts since the last look, or in all at first.
#[derive(Debug, Serialize)]
struct Shown {
    /// The length of time of the counts; none since the runtime began.
    seconds: Option<f64>,
    tasks: f64,
    cpus: f64,
    busy_cpus: f64,
    wakes: f64,
    switches: f64,
    migrations: f64,
    steals: f64,
    /// In all.
    panics: f64,
    /// In all.
    slow_polls: f64,
    classes: Vec<ShownClass>,
    groups: Vec<ShownGroup>,
}

/// The value of a label in `class="fair",le="0.5"`, as it was before it was escaped.
fn label(labels: &str, name: &str) -> Option<String> {
    let start = labels.find(&format!("{name}=\""))? + name.len() + 2;
    let mut value = String::new();
    let mut chars = labels[start..].chars();
    loop {
        match chars.next()? {
            '"' => return Some(value),
            '\\' => value.push(match chars.next()? {
                'n' => '\n',
                char => char,
            }),
            char => value.push(char),
        }
    }
}

impl Durations {
    fn add(&mut self, part: &str, labels: &str, value: f64) -> Option<()> {
        match part {
            "bucket" => {
                let end = label(labels, "le")?;
                if end != "+Inf" {
                    self.up_to.push(((end.parse::<f64>().ok()? * 1e6).round() as u64, value));
                }
            }
            "count" => self.count = value,
            _ => {}
        }
        Some(())
    }

    fn since(&self, before: &Self) -> Self {
        let earlier = |at: usize| before.up_to.get(at).map_or(0.0, |&(_, count)| count);
        let up_to = self.up_to.iter().enumerate().map(|(at, &(end, count))| (end, count - earlier(at)));
        Self { up_to: up_to.collect(), count: self.count - before.count }
    }

    /// The end of the bucket that has this rank; `None` without durations, and above the last end.
    fn quantile(&self, rank: f64) -> Option<u64> {
        let wanted = (self.count * rank).ceil().max(1.0);
        self.up_to.iter().find(|&&(_, count)| count >= wanted).map(|&(end, _)| end)
    }
}

impl Counts {
    fn class(&mut self, labels: &str) -> Option<&mut ClassCounts> {
        let name = label(labels, "class")?;
        let at = self.classes.iter().position(|(class, _)| *class == name).unwrap_or_else(|| {
            self.classes.push((name, ClassCounts::default()));
            self.classes.len() - 1
        });
        Some(&mut self.classes[at].1)
    }

    /// Reads a page. An error says why it is none.
    fn parse(page: &str) -> Result<Self, String> {
        let mut counts = Self::default();
        for (index, line) in page.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
            counts.add(line).ok_or_else(|| format!("line {}: no metric of `hitm`: `{line}`", index + 1))?;
        }
        match ["tasks", "cpus", "busy_cpus"].iter().find(|name| !counts.plain.contains_key(**name)) {
            Some(name) => Err(format!("it has no `hitm_{name}`")),
            None => Ok(counts),
        }
    }

    fn add(&mut self, line: &str) -> Option<()> {
        let (metric, value) = line.rsplit_once(' ')?;
        let value: f64 = value.parse().ok().filter(|value: &f64| value.is_finite())?;
        let metric = metric.strip_prefix("hitm_")?;
        let Some((name, labels)) = metric.split_once('{') else {
            self.plain.insert(metric.to_owned(), value);
            return Some(());
        };
        match name {
            "queued_tasks" => self.class(labels)?.queued = value,
            "group_throttled_total" => self.groups.entry(label(labels, "group")?).or_default()[0] = value,
            "group_throttled_seconds_total" => self.groups.entry(label(labels, "group")?).or_default()[1] = value,
            _ => {
                if let Some(part) = name.strip_prefix("wakeup_seconds_") {
                    self.class(labels)?.wakeups.add(part, labels, value)?;
                } else if let Some(part) = name.strip_prefix("poll_seconds_") {
                    self.class(labels)?.polls.add(part, labels, value)?;
                }
                // A later version may have more.
            }
        }
        Some(())
    }

    /// What happened since `before`, which was so many `seconds` ago.
    fn since(&self, before: &Self, seconds: Option<f64>) -> Shown {
        let value = |name: &str| self.plain.get(name).copied().unwrap_or_default();
        let more = |name: &str| value(name) - before.plain.get(name).copied().unwrap_or_default();
        let classes = self.classes.iter().map(|(name, own)| {
            let none = ClassCounts::default();
            let earlier = before.classes.iter().find(|(class, _)| class == name).map_or(&none, |(_, counts)| counts);
            let (wakeups, polls) = (own.wakeups.since(&earlier.wakeups), own.polls.since(&earlier.polls));
            let quantiles = |durations: &Durations| [0.5, 0.99].map(|rank| durations.quantile(rank));
            ShownClass {
                class: name.clone(),
                waiting: own.queued,
                wakeups: wakeups.count,
                wakeup_us: quantiles(&wakeups),
                polls: polls.count,
                poll_us: quantiles(&polls),
            }
        });
        let groups = self.groups.iter().map(|(name, &[times, seconds])| {
            let [times_before, seconds_before] = before.groups.get(name).copied().unwrap_or_default();
            let (throttled, throttled_seconds) = (times - times_before, seconds - seconds_before);
            ShownGroup { group: name.clone(), throttled, throttled_seconds }
        });
        Shown {
            seconds,
            tasks: value("tasks"),
            cpus: value("cpus"),
            busy_cpus: value("busy_cpus"),
            wakes: more("wakes_total"),
            switches: more("switches_total"),
            migrations: more("migrations_total"),
            steals: more("steals_total"),
            panics: value("panics_total"),
            slow_polls: value("slow_polls_total"),
            classes: classes.collect(),
            groups: groups.collect(),
        }
    }
}

impl Shown {
    fn text(&self) -> String {
        // A rate, or the count since the begin.
        let rate = |count: f64| match self.seconds {
            Some(seconds) => format!("{:.0}/s", count / seconds.max(1e-9)),
            None => format!("{count:.0}"),
        };
        let waiting: f64 = self.classes.iter().map(|class| class.waiting).sum();
        let mut text = format!(
            "{} tasks, {waiting} of them wait for a CPU; {} of {} CPUs run a task\n",
            self.tasks, self.busy_cpus, self.cpus
        );
        text += &format!(
            "{} wakeups, {} switches, {} migrations, {} steals; {} panics and {} slow polls in all\n\n",
            rate(self.wakes),
            rate(self.switches),
            rate(self.migrations),
            rate(self.steals),
            self.panics,
            self.slow_polls
        );
        let heads = ["class", "waiting", "wakeups", "to poll, p50", "p99", "polls", "poll, p50", "p99"];
        let align = |index: usize| if index == 0 { Align::Left } else { Align::Right };
        let heads: Vec<_> = heads.iter().enumerate().map(|(index, head)| (*head, align(index))).collect();
        let mut table = Columns::new(&heads);
        let end = |count: f64, micros: Option<u64>| match micros {
            Some(micros) => format!("<= {micros} us"),
            None if count == 0.0 => "-".to_owned(),
            None => "> 2 s".to_owned(),
        };
        for class in &self.classes {
            let [wake, late_wake] = class.wakeup_us.map(|micros| end(class.wakeups, micros));
            let [poll, long_poll] = class.poll_us.map(|micros| end(class.polls, micros));
            let waiting = class.waiting.to_string();
            let (wakeups, polls) = (rate(class.wakeups), rate(class.polls));
            table.row(vec![class.class.clone(), waiting, wakeups, wake, late_wake, polls, poll, long_poll]);
        }
        text += &table.render(width());
        for ShownGroup { group, throttled, throttled_seconds } in &self.groups {
            let throttled = rate(*throttled);
            text += &format!("group `{group}`: {throttled} times stopped by its limit, for {throttled_seconds:.3} s\n");
        }
        text
    }
}
