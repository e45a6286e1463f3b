//! The workloads with their parameters, and what both hosts need of each.

use hitm::{Handle, Roles};
use hitm_memory::{Platform, Span};
use hitm_report::latency::{self, percentile};
use hitm_report::load::{Kind, Load};
use hitm_report::published::{self, Key, On, Published, Quantity};
use hitm_report::result::Metric;
use hitm_report::statistics::{Mean, mean_of_batches};
use hitm_sched::mitigation::Mitigation;
use hitm_topology::Topology;
use hitm_workloads::cid_storms::{self, Storms};
use hitm_workloads::context1::{self, Context1};
use hitm_workloads::cyclic::{self, Cyclic};
use hitm_workloads::ffmpeg::{self, Ffmpeg};
use hitm_workloads::loopback::trace::COUNTED_BYTES;
use hitm_workloads::loopback::{self, Loopback, Test};
use hitm_workloads::meter::{BATCHES, Window};
use hitm_workloads::nested;
use hitm_workloads::pi_stress::{self, PiStress};
use hitm_workloads::schbench::{self, Schbench};

/// A workload and its parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Workload {
    Ffmpeg(ffmpeg::Config),
    Cyclic(cyclic::Config),
    PiStress(pi_stress::Config),
    CidStorms(cid_storms::Config),
    Loopback(loopback::Config),
    Schbench(schbench::Config),
    Context1(context1::Config),
}

/// A workload that was started.
#[derive(Debug)]
pub(crate) enum Running {
    Ffmpeg(Ffmpeg),
    Cyclic(Cyclic),
    PiStress(PiStress),
    CidStorms(Storms),
    Loopback(Loopback),
    Schbench(Schbench),
    Context1(Context1),
}

impl Workload {
    /// Returns the name in commands and reports.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Ffmpeg(_) => "ffmpeg",
            Self::Cyclic(_) => "cyclic",
            Self::PiStress(_) => "pi_stress",
            Self::CidStorms(_) => "cid-storms",
            Self::Loopback(loopback::Config { test: Test::Tbench, .. }) => "tbench",
            Self::Loopback(_) => "netperf",
            Self::Schbench(_) => "schbench",
            Self::Context1(_) => "context1",
        }
    }

    /// Returns the modelled program, as options say it; empty for a workload that models one
    /// program only.
    pub(crate) fn profile(&self) -> String {
        match self {
            Self::Ffmpeg(config) if config.scale => format!("{} --scale", config.profile.name()),
            Self::Ffmpeg(config) => config.profile.name().to_owned(),
            Self::CidStorms(config) => config.load.name().to_owned(),
            Self::Loopback(config) => loopback_profile(config),
            Self::Schbench(config) => schbench_profile(config),
            Self::Context1(config) => context1_profile(config),
            Self::Cyclic(_) | Self::PiStress(_) => self.options().trim_start().to_owned(),
        }
    }

    /// Returns the options that make this workload again, beside those that all workloads have.
    /// Each has a space before it.
    pub(crate) fn options(&self) -> String {
        match self {
            Self::Ffmpeg(ffmpeg::Config { profile, scale, burst_factor, .. }) => {
                let profile = Some(profile).filter(|&&profile| profile != ffmpeg::Profile::default());
                let profile = profile.map_or_else(String::new, |profile| format!(" --profile {}", profile.name()));
                format!("{profile}{} --burst-factor {burst_factor}", if *scale { " --scale" } else { "" })
            }
            Self::Cyclic(config) => cyclic_options(config),
            Self::PiStress(config) => pi_stress_options(config),
            Self::CidStorms(config) => format!(" --load {}", config.load.name()),
            Self::Loopback(config) => loopback_options(config),
            Self::Schbench(config) => {
                let depth = options(&[("depth", unusual(config.depth, 0))]);
                format!(" --message-threads {}{depth}{}", config.messengers, unusual_schbench_options(config))
            }
            Self::Context1(config) => {
                let depth = options(&[("depth", unusual(config.depth, 1))]);
                format!(" --pairs {}{depth} --work {}", config.pairs, nanos(config.work))
            }
        }
    }

    /// Returns its load; `None` for a workload with one load, and for one with an unusual option.
    pub(crate) fn load(&self) -> Option<Load> {
        let (kind, depth) = match self {
            Self::Loopback(loopback::Config { test, pairs, depth, .. }) => {
                let kind = match *test {
                    Test::Tbench => Kind::Clients(*pairs),
                    Test::RequestReply => Kind::RequestReply(*pairs),
                    Test::Stream(bytes) => Kind::UdpStream { bytes, clients: *pairs },
                };
                (kind, *depth)
            }
            Self::Schbench(config) if unusual_schbench_options(config).is_empty() => {
                (Kind::MessageThreads(config.messengers), config.depth)
            }
            Self::Context1(config) => (Kind::Pairs(config.pairs), config.depth),
            Self::Schbench(_) | Self::Ffmpeg(_) | Self::Cyclic(_) | Self::PiStress(_) | Self::CidStorms(_) => {
                return None;
            }
        };
        Some(Load { kind, depth })
    }

    /// Returns the key of the published figures: by machine for context1, by number of CPUs for the
    /// others.
    fn key<'a>(&self, topology: &Topology, mitigation: &'a Mitigation) -> Key<'a> {
        let on = match self {
            Self::Context1(_) => On::Machine(topology.name().to_owned()),
            _ => On::Cpus(topology.cpus()),
        };
        let (workload, load, mitigation) = (self.name(), self.load(), mitigation.name());
        Key { workload, on, load, mitigation, quantity: Quantity::Relative }
    }

    /// Returns a note on the share of cycles that went to the fields that a mitigation moves, for
    /// workloads about that.
    pub(crate) fn task_group_note(&self, topology: &Topology, mitigation: &Mitigation, share: f64) -> Option<String> {
        let Self::Context1(_) = self else { return None };
        let key = Key { quantity: Quantity::GroupCycles, ..self.key(topology, mitigation) };
        let published =
            published::figure(&key).map_or_else(String::new, |(share, _)| format!(", published {:.1}", 100.0 * share));
        Some(format!("of the busy cycles {:.1} % went to rt_se and rt_rq{published}", 100.0 * share))
    }

    /// Returns the published figures: on 480 CPUs, and for cyclic with the usual sleeps.
    pub(crate) fn published(&self, topology: &Topology, mitigation: &Mitigation) -> Option<Published> {
        let alike = match self {
            Self::Context1(_) | Self::Ffmpeg(_) => true,
            Self::CidStorms(_) | Self::Loopback(_) | Self::Schbench(_) => false,
            Self::PiStress(config) => config.groups.is_none(),
            Self::Cyclic(config) => config.sleep == cyclic::Config::SLEEP && config.instances.is_none(),
        };
        published::of(&self.key(topology, mitigation)).filter(|_| alike)
    }

    /// Returns the measured window.
    pub(crate) fn window(&self) -> Window {
        match self {
            Self::Ffmpeg(config) => config.window,
            Self::Cyclic(config) => config.window,
            Self::PiStress(config) => config.window,
            Self::CidStorms(config) => config.window,
            Self::Loopback(config) => config.window,
            Self::Schbench(config) => config.window,
            Self::Context1(config) => config.window,
        }
    }

    /// Returns the random seed.
    pub(crate) fn seed(&self) -> u64 {
        match self {
            Self::Ffmpeg(config) => config.seed,
            Self::Cyclic(config) => config.seed,
            Self::PiStress(config) => config.seed,
            Self::CidStorms(config) => config.seed,
            Self::Loopback(config) => config.seed,
            Self::Schbench(config) => config.seed,
            Self::Context1(config) => config.seed,
        }
    }

    /// Returns the same workload with another random seed.
    pub(crate) fn with_seed(mut self, seed: u64) -> Self {
        match &mut self {
            Self::Ffmpeg(config) => config.seed = seed,
            Self::Cyclic(config) => config.seed = seed,
            Self::PiStress(config) => config.seed = seed,
            Self::CidStorms(config) => config.seed = seed,
            Self::Loopback(config) => config.seed = seed,
            Self::Schbench(config) => config.seed = seed,
            Self::Context1(config) => config.seed = seed,
        }
        self
    }

    /// Returns counters for the roles of its tasks.
    pub(crate) fn roles(&self) -> Roles {
        match self {
            Self::Ffmpeg(_) => ffmpeg::roles(),
            Self::Cyclic(_) => cyclic::roles(),
            Self::PiStress(_) => pi_stress::roles(),
            Self::CidStorms(_) => cid_storms::roles(),
            Self::Loopback(_) => loopback::roles(),
            Self::Schbench(_) => schbench::roles(),
            Self::Context1(_) => context1::roles(),
        }
    }

    /// Returns the percentiles that its report shows of the samples; empty for a workload without
    /// samples.
    pub(crate) fn percents(&self) -> &'static [f64] {
        match self {
            Self::Schbench(_) => &latency::SCHBENCH,
            _ => &latency::STRESS_NG,
        }
    }

    /// Returns whether its report has the operations per work unit.
    pub(crate) fn counts_operations(&self) -> bool {
        matches!(self, Self::PiStress(_))
    }

    /// Returns whether its tasks are fair. The report then says how much of the CPUs' time was lost
    /// while a task waited.
    pub(crate) fn is_fair(&self) -> bool {
        matches!(self, Self::Loopback(_) | Self::Schbench(_) | Self::Context1(_))
    }

    /// Returns whether its tasks have concurrency ids. The report then has their cost.
    pub(crate) fn has_ids(&self) -> bool {
        matches!(self, Self::CidStorms(_))
    }

    /// Returns the figure of merit before [`Workload::metric`] gives it a unit: from `batches` as
    /// [`Running::batches`] has them for each seed, and from the `latencies` of all seeds.
    pub(crate) fn mean(&self, batches: &[[f64; BATCHES]], latencies: &[Span]) -> Mean {
        let Self::Schbench(_) = self else { return mean_of_batches(batches) };
        // The mean over batches would be too low for a percentile: a batch has few samples. Batches
        // without samples are left out.
        let finite = |own: &[f64; BATCHES]| own.iter().copied().filter(|own| own.is_finite()).collect::<Vec<_>>();
        let interval = mean_of_batches(&batches.iter().map(finite).collect::<Vec<_>>()).interval;
        Mean { value: late(latencies), interval }
    }

    /// Returns the number of units that the report's counts are divided by: work units in
    /// `seconds`, or samples for a workload that has no rate.
    pub(crate) fn units(&self, mean: Mean, seconds: f64, samples: usize) -> f64 {
        if let Self::Schbench(_) = self { samples as f64 } else { mean.value * seconds }
    }

    /// Returns the figure of merit.
    pub(crate) fn metric(&self, mean: Mean) -> Metric {
        let (name, unit, each) = match self {
            Self::Ffmpeg(_) => ("frames_per_second", "1/s", 1.0),
            Self::Cyclic(_) => ("bogo_operations_per_second", "1/s", 1.0),
            Self::PiStress(_) => ("inversions_per_second", "1/s", 1.0),
            Self::CidStorms(_) => ("operations_per_second", "1/s", 1.0),
            Self::Context1(_) => ("loops_per_second", "1/s", 1.0),
            Self::Loopback(config) => match config.test {
                Test::Tbench => ("throughput", "MB/s", COUNTED_BYTES * 1e-6),
                Test::RequestReply => ("transactions_per_second", "1/s", 1.0),
                Test::Stream(bytes) => ("sent", "Mbit/s", bytes as f64 * 8e-6),
            },
            Self::Schbench(_) => ("wakeup_latency_p99", "us", 1.0),
        };
        let better = if let Self::Schbench(_) = self { "lower" } else { "higher" };
        Metric {
            name: name.to_owned(),
            value: mean.value * each,
            interval: mean.interval * each,
            unit: unit.to_owned(),
            better: better.to_owned(),
        }
    }

    /// Starts the workload, which shuts the runtime down at the end of its window.
    pub(crate) fn start<P: Platform>(&self, runtime: &Handle<P>) -> Running {
        match *self {
            Self::Ffmpeg(config) => Running::Ffmpeg(Ffmpeg::start(runtime, config)),
            Self::Cyclic(config) => Running::Cyclic(Cyclic::start(runtime, config)),
            Self::PiStress(config) => Running::PiStress(PiStress::start(runtime, config)),
            Self::CidStorms(config) => Running::CidStorms(Storms::start(runtime, config)),
            Self::Loopback(config) => Running::Loopback(Loopback::start(runtime, config)),
            Self::Schbench(config) => Running::Schbench(Schbench::start(runtime, config)),
            Self::Context1(config) => Running::Context1(Context1::start(runtime, config)),
        }
    }
}

/// Returns the operation of the pairs and their number, in words.
fn loopback_profile(config: &loopback::Config) -> String {
    let plural = if config.pairs == 1 { "" } else { "s" };
    let test = match config.test {
        Test::Tbench => String::new(),
        Test::RequestReply => "rr, ".to_owned(),
        Test::Stream(bytes) => format!("udp-stream, {bytes} bytes, "),
    };
    format!("{test}{} client{plural}{}", config.pairs, nested::in_words(config.depth, 0))
}

fn loopback_options(config: &loopback::Config) -> String {
    let test = match config.test {
        Test::Tbench => String::new(),
        Test::RequestReply => " --test rr".to_owned(),
        Test::Stream(bytes) => format!(" --test udp-stream --size {bytes}"),
    };
    let depth = options(&[("depth", unusual(config.depth, 0))]);
    format!("{test} --clients {}{depth} --work {}", config.pairs, nanos(config.work))
}

/// Returns the number of pairs and the unusual options, in words.
fn context1_profile(config: &context1::Config) -> String {
    let plural = if config.pairs == 1 { "" } else { "s" };
    format!("{} pair{plural}{}", config.pairs, nested::in_words(config.depth, 1))
}

/// Returns the number of message threads and the unusual options, in words.
fn schbench_profile(config: &schbench::Config) -> String {
    let plural = if config.messengers == 1 { "" } else { "s" };
    let groups = nested::in_words(config.depth, 0);
    format!("{} message thread{plural}{groups}{}", config.messengers, unusual_schbench_options(config))
}

fn unusual_schbench_options(config: &schbench::Config) -> String {
    let usual = schbench::Config::new(config.messengers, config.seed, config.window);
    let time = |own: Span, usual: Span| (own != usual).then(|| nanos(own));
    options(&[
        ("threads", config.workers.map(|workers| workers.to_string())),
        ("cputime", time(config.cputime, usual.cputime)),
        ("sleeptime", time(config.sleeptime, usual.sleeptime)),
    ])
}

/// Returns the 99th percentile in microseconds.
fn late(latencies: &[Span]) -> f64 {
    percentile(latencies, 99.0).map_or(f64::NAN, |latency| latency.as_nanos_f64() / 1e3)
}

/// Returns a time as an option takes it.
fn nanos(span: Span) -> String {
    format!("{}ns", span.as_picos() / 1_000)
}

/// Returns a number that is not the usual one.
fn unusual(number: usize, usual: usize) -> Option<String> {
    (number != usual).then(|| number.to_string())
}

/// Returns the options that have a value, each with a space before it.
fn options(options: &[(&str, Option<String>)]) -> String {
    options.iter().filter_map(|(name, value)| Some(format!(" --{name} {}", value.as_ref()?))).collect()
}

/// Returns the unusual options, each with a space before it.
fn cyclic_options(config: &cyclic::Config) -> String {
    let usual = cyclic::Config::new(config.seed, config.window);
    options(&[
        ("instances", config.instances.map(|count| count.to_string())),
        ("sleep", (config.sleep != usual.sleep).then(|| nanos(config.sleep))),
        ("work", (config.work != usual.work).then(|| nanos(config.work))),
        ("priority", (config.priority != usual.priority).then(|| config.priority.to_string())),
        ("placement", (config.placement != usual.placement).then(|| config.placement.name().to_owned())),
    ])
}

/// As above.
fn pi_stress_options(config: &pi_stress::Config) -> String {
    options(&[
        ("groups", config.groups.map(|count| count.to_string())),
        ("order", (config.order != pi_stress::Order::default()).then(|| config.order.name().to_owned())),
    ])
}

impl Running {
    /// Returns the figure of merit per batch; not a number for a batch without one.
    pub(crate) fn batches(&self) -> [f64; BATCHES] {
        match self {
            Self::Ffmpeg(ffmpeg) => ffmpeg.frames_per_second(),
            Self::Cyclic(cyclic) => cyclic.operations_per_second(),
            Self::PiStress(pi_stress) => pi_stress.inversions_per_second(),
            Self::CidStorms(storms) => storms.operations_per_second(),
            Self::Loopback(loopback) => loopback.operations_per_second(),
            Self::Schbench(schbench) => schbench.latencies_by_batch().map(|latencies| late(&latencies)),
            Self::Context1(context1) => context1.loops_per_second(),
        }
    }

    /// Returns the delays of wakeups, for workloads that record them.
    pub(crate) fn latencies(&self) -> Vec<Span> {
        match self {
            Self::Cyclic(cyclic) => cyclic.latencies(),
            Self::Schbench(schbench) => schbench.latencies().concat(),
            Self::Ffmpeg(_) | Self::PiStress(_) | Self::CidStorms(_) | Self::Loopback(_) | Self::Context1(_) => {
                Vec::new()
            }
        }
    }

    /// Returns the fault that the workload found in its own run.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        match self {
            Self::PiStress(pi_stress) if pi_stress.is_stuck() => Some(
                "a group got nothing done for 5 looks of the admin task in a row, 3.75s: a deadlock, or CPUs too slow",
            ),
            Self::PiStress(_)
            | Self::Ffmpeg(_)
            | Self::Cyclic(_)
            | Self::CidStorms(_)
            | Self::Loopback(_)
            | Self::Schbench(_)
            | Self::Context1(_) => None,
        }
    }
}
