//! [`MetricsSnapshot`]: the metrics of a runtime at one time, and their Prometheus form.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use hitm_memory::Platform;
use hitm_topology::CpuId;

use crate::diagnostics::Count;
use crate::group::GroupThrottle;
use crate::metrics::{BUCKETS, Class, Durations, PerCpu};
use crate::runtime::Handle;

/// A histogram of durations: how many were at most 1 us, at most 2 us, at most 4 us, and so on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    buckets: [u64; BUCKETS],
    nanos: u64,
}

impl Histogram {
    fn sum<'a>(durations: impl Iterator<Item = &'a Durations>) -> Self {
        let mut sum = Self { buckets: [0; BUCKETS], nanos: 0 };
        durations.for_each(|durations| durations.add_to(&mut sum.buckets, &mut sum.nanos));
        sum
    }

    /// Returns the number of durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the sum of the durations, in nanoseconds.
    #[must_use]
    pub fn nanos(&self) -> u64 {
        self.nanos
    }

    /// Returns the upper end, in microseconds, of the bucket that has the duration of this rank,
    /// from 0.0 to 1.0; `None` without durations, and when the duration is above 2^21 us.
    #[must_use]
    pub fn quantile(&self, rank: f64) -> Option<u64> {
        let wanted = (self.count() as f64 * rank).ceil().max(1.0) as u64;
        let mut count = 0;
        let bucket = self.buckets.iter().position(|&own| {
            count += own;
            count >= wanted
        })?;
        (bucket + 1 < BUCKETS).then_some(1 << bucket)
    }
}

/// The metrics of a class of tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClassMetrics {
    /// The class.
    pub class: Class,
    /// The number of tasks that wait for a CPU.
    pub queued: u64,
    /// How long woken tasks waited for a CPU.
    pub wakeups: Histogram,
    /// How long polls took.
    pub polls: Histogram,
}

/// The metrics of a runtime: see [`Handle::metrics`]. Its text is in Prometheus' form.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct MetricsSnapshot {
    /// The number of live tasks.
    pub tasks: usize,
    /// The number of CPUs.
    pub cpus: usize,
    /// The number of CPUs that run a task.
    pub busy_cpus: usize,
    /// By class, the most urgent one first.
    pub classes: Vec<ClassMetrics>,
    /// The number of polls above the limit: see
    /// [`Builder::slow_polls`](crate::Builder::slow_polls).
    pub slow_polls: u64,
    /// The number of tasks that have panicked.
    pub panics: u64,
    /// The number of tasks that were queued on another CPU than before.
    pub migrations: u64,
    /// The number of tasks that a CPU has sent to another one, or fetched from one.
    pub steals: u64,
    /// The number of switches from one task, or none, to another.
    pub switches: u64,
    /// The number of sleeping tasks that were woken.
    pub wakes: u64,
    /// By name, the groups that exist.
    pub throttled: Vec<GroupThrottle>,
}

impl<P: Platform> Handle<P> {
    /// Returns the runtime's metrics; `None` when the runtime was made without
    /// [`Builder::metrics`](crate::Builder::metrics). A poll is counted after its end: a task may
    /// be joined before its last poll is counted.
    ///
    /// ```
    /// let runtime = hitm::NativeRuntime::builder().cpus(2).metrics().build().unwrap();
    /// runtime.block_on(async { hitm::spawn(async {}).await.unwrap() });
    /// let metrics = runtime.handle().metrics().unwrap();
    /// assert_eq!(metrics.classes[1].wakeups.count(), 1);
    /// let page = metrics.to_string();
    /// assert!(page.contains("hitm_wakeup_seconds_count{class=\"default\"} 1\n"));
    /// ```
    #[must_use]
    pub fn metrics(&self) -> Option<MetricsSnapshot> {
        let runtime = &*self.0;
        let metrics = runtime.observe.metrics.as_ref()?;
        let stats = runtime.sched.stats();
        let class = |class: Class| {
            let index = class as usize;
            // Relaxed: statistics. The ends are read first, so that no wait ends before it began.
            let load = |of: fn(&PerCpu) -> &[AtomicU64; 3]| -> u64 {
                metrics.cpus.iter().map(|cpu| of(cpu)[index].load(Ordering::Relaxed)).sum()
            };
            let begun = load(|cpu| &cpu.begun);
            ClassMetrics {
                class,
                queued: load(|cpu| &cpu.queued).saturating_sub(begun),
                wakeups: Histogram::sum(metrics.cpus.iter().map(|cpu| &cpu.wakeups[index])),
                polls: Histogram::sum(metrics.cpus.iter().map(|cpu| &cpu.polls[index])),
            }
        };
        let cpus = runtime.sched.topology().cpus();
        let busy = |&cpu: &CpuId| runtime.sched.running(cpu).is_some();
        // Relaxed: statistics.
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        Some(MetricsSnapshot {
            tasks: runtime.task_count.count(),
            cpus,
            busy_cpus: runtime.sched.topology().cpu_ids().filter(busy).count(),
            classes: Class::ALL.map(class).into(),
            slow_polls: metrics.cpus.iter().map(|cpu| load(&cpu.slow_polls)).sum(),
            panics: load(&metrics.panics),
            migrations: stats.sum(Count::Migration),
            steals: stats.sum(Count::Push) + stats.sum(Count::Pull) + stats.sum(Count::Balance),
            switches: stats.sum(Count::ContextSwitch),
            wakes: stats.sum(Count::Wake),
            throttled: self.throttled_groups(),
        })
    }
}

/// Writes a value without labels.
fn value(f: &mut fmt::Formatter<'_>, name: &str, kind: &str, help: &str, value: u64) -> fmt::Result {
    head(f, name, kind, help)?;
    writeln!(f, "hitm_{name} {value}")
}

fn head(f: &mut fmt::Formatter<'_>, name: &str, kind: &str, help: &str) -> fmt::Result {
    writeln!(f, "# HELP hitm_{name} {help}\n# TYPE hitm_{name} {kind}")
}

fn histogram(f: &mut fmt::Formatter<'_>, name: &str, class: &str, histogram: &Histogram) -> fmt::Result {
    let mut count = 0;
    for (bucket, own) in histogram.buckets.iter().enumerate() {
        count += own;
        if bucket + 1 < BUCKETS {
            let end = (1_u64 << bucket) as f64 / 1e6;
            writeln!(f, "hitm_{name}_bucket{{class=\"{class}\",le=\"{end}\"}} {count}")?;
        }
    }
    writeln!(f, "hitm_{name}_bucket{{class=\"{class}\",le=\"+Inf\"}} {count}")?;
    writeln!(f, "hitm_{name}_sum{{class=\"{class}\"}} {}", histogram.nanos as f64 / 1e9)?;
    writeln!(f, "hitm_{name}_count{{class=\"{class}\"}} {count}")
}

/// A group's name as a label's value.
struct Label<'a>(&'a str);

impl fmt::Display for Label<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|char| match char {
            '\\' | '"' => write!(f, "\\{char}"),
            '\n' => f.write_str("\\n"),
            char => write!(f, "{char}"),
        })
    }
}

impl fmt::Display for MetricsSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        value(f, "tasks", "gauge", "Live tasks.", self.tasks as u64)?;
        value(f, "cpus", "gauge", "CPUs of the runtime.", self.cpus as u64)?;
        value(f, "busy_cpus", "gauge", "CPUs that run a task.", self.busy_cpus as u64)?;
        head(f, "queued_tasks", "gauge", "Tasks that wait for a CPU.")?;
        for ClassMetrics { class, queued, .. } in &self.classes {
            writeln!(f, "hitm_queued_tasks{{class=\"{}\"}} {queued}", class.name())?;
        }
        head(f, "wakeup_seconds", "histogram", "Time from a wakeup to the poll.")?;
        for ClassMetrics { class, wakeups, .. } in &self.classes {
            histogram(f, "wakeup_seconds", class.name(), wakeups)?;
        }
        head(f, "poll_seconds", "histogram", "Time that a poll took.")?;
        for ClassMetrics { class, polls, .. } in &self.classes {
            histogram(f, "poll_seconds", class.name(), polls)?;
        }
        value(f, "slow_polls_total", "counter", "Polls above the limit for a warning.", self.slow_polls)?;
        value(f, "panics_total", "counter", "Tasks that have panicked.", self.panics)?;
        value(f, "wakes_total", "counter", "Sleeping tasks that were woken.", self.wakes)?;
        value(f, "switches_total", "counter", "Switches from one task, or none, to another.", self.switches)?;
        value(f, "migrations_total", "counter", "Tasks queued on another CPU than before.", self.migrations)?;
        value(f, "steals_total", "counter", "Tasks that a CPU has sent or fetched.", self.steals)?;
        if self.throttled.is_empty() {
            return Ok(());
        }
        head(
            f,
            "group_throttled_total",
            "counter",
            "Times that a CPU stopped running a group whose limit was used up.",
        )?;
        for GroupThrottle { name, throttles, .. } in &self.throttled {
            writeln!(f, "hitm_group_throttled_total{{group=\"{}\"}} {throttles}", Label(name))?;
        }
        head(
            f,
            "group_throttled_seconds_total",
            "counter",
            "Time for which CPUs did not run a group whose limit was used up.",
        )?;
        for GroupThrottle { name, nanos, .. } in &self.throttled {
            writeln!(f, "hitm_group_throttled_seconds_total{{group=\"{}\"}} {}", Label(name), *nanos as f64 / 1e9)?;
        }
        Ok(())
    }
}
