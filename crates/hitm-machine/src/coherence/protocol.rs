//! The protocol as a table: what each event does to a line in each state.
//!
//! States are as one CPU sees them, since whether an access finds its line depends on who asks. The
//! table is one `match` without a rest, so it has every pair of state and event. A test leads the
//! [`Directory`](super::Directory) into every state and compares what it does at every event, so
//! the table is what the engines do. It has the rules where caches have no sizes.

/// A line as a CPU sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// No cache has it.
    Uncached,
    /// The CPU's core has it alone, and the CPU may write it.
    Own,
    /// The same, and has modified it.
    OwnModified,
    /// The CPU's core has it alone, and several of its threads have read it.
    Core,
    /// The CPU's core has it alone, and another of its threads had it last.
    Sibling,
    /// Another core has it alone.
    Other,
    /// The same, and has modified it.
    OtherModified,
    /// Several cores have it, the CPU's own among them.
    Shared,
    /// Several other cores have it.
    SharedByOthers,
}

impl State {
    const ALL: [Self; 9] = [
        Self::Uncached,
        Self::Own,
        Self::OwnModified,
        Self::Core,
        Self::Sibling,
        Self::Other,
        Self::OtherModified,
        Self::Shared,
        Self::SharedByOthers,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Uncached => "uncached",
            Self::Own => "own",
            Self::OwnModified => "own, modified",
            Self::Core => "own core's, read by several threads",
            Self::Sibling => "another thread's of the core",
            Self::Other => "another core's",
            Self::OtherModified => "another core's, modified",
            Self::Shared => "shared, with a copy here",
            Self::SharedByOthers => "shared by others",
        }
    }
}

/// What happens to a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The CPU loads.
    Load,
    /// The CPU stores, or reads, modifies and writes.
    Write,
    /// Its memory is freed.
    Free,
}

impl Event {
    const ALL: [Self; 3] = [Self::Load, Self::Write, Self::Free];

    fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Write => "store, read-modify-write",
            Self::Free => "free",
        }
    }
}

/// Where an access is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    /// Where the CPU is: no request.
    Hit,
    /// In memory.
    Memory,
    /// At another thread of the core.
    Core,
    /// At the core that has it.
    Owner,
    /// At a copy of the LLC domain, or the nearest one.
    Copy,
    /// At the farthest copy, as all are invalidated.
    Invalidation,
    /// Nowhere: it is no access.
    Nothing,
}

impl Service {
    /// The row of a cost table that it takes, for an idle line.
    fn cost(self) -> &'static str {
        match self {
            Self::Hit => "`load_hit` or `rmw_hit`",
            Self::Memory => "`memory_local` or `memory_remote`",
            Self::Core => "`same_core`",
            Self::Owner => "the transfer over `queued_factor`",
            Self::Copy => "`llc_read`, or the transfer over `queued_factor`",
            Self::Invalidation => "the farthest transfer over `queued_factor`, and `invalidation_each`",
            Self::Nothing => "-",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Memory => "memory",
            Self::Core => "the other thread",
            Self::Owner => "the owner",
            Self::Copy => "a copy",
            Self::Invalidation => "invalidation",
            Self::Nothing => "-",
        }
    }
}

/// What an event does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) service: Service,
    /// Whether it counts as a HITM.
    pub(crate) hitm: bool,
    /// The state afterwards, as the same CPU sees it.
    pub(crate) next: State,
}

/// What `event` does to a line in `state`.
pub(crate) fn step(state: State, event: Event) -> Step {
    use Service::{Copy, Core as Thread, Hit, Invalidation, Memory, Nothing, Owner};
    use State::{Core, Other, OtherModified, Own, OwnModified, Shared, SharedByOthers, Sibling, Uncached};
    let to = |service, next| Step { service, hitm: false, next };
    match (state, event) {
        (Uncached, Event::Load) => to(Memory, Own),
        (Uncached, Event::Write) => to(Memory, OwnModified),
        (Own, Event::Load) => to(Hit, Own),
        (OwnModified, Event::Load) | (Own | OwnModified, Event::Write) => to(Hit, OwnModified),
        (Core, Event::Load) => to(Hit, Core),
        (Sibling, Event::Load) => to(Thread, Core),
        (Core | Sibling, Event::Write) => to(Thread, OwnModified),
        (Other, Event::Load) => to(Owner, Shared),
        (Other, Event::Write) => to(Owner, OwnModified),
        (OtherModified, Event::Load) => Step { hitm: true, ..to(Owner, Shared) },
        (OtherModified, Event::Write) => Step { hitm: true, ..to(Owner, OwnModified) },
        (Shared, Event::Load) => to(Hit, Shared),
        (SharedByOthers, Event::Load) => to(Copy, Shared),
        (Shared | SharedByOthers, Event::Write) => to(Invalidation, OwnModified),
        (
            Uncached | Own | OwnModified | Core | Sibling | Other | OtherModified | Shared | SharedByOthers,
            Event::Free,
        ) => to(Nothing, Uncached),
    }
}

/// Returns the table in Markdown.
#[must_use]
pub fn table() -> String {
    let mut text = "| state | event | served by | costs | then |\n|---|---|---|---|---|\n".to_owned();
    for (state, event) in State::ALL.iter().flat_map(|&state| Event::ALL.map(|event| (state, event))) {
        let Step { service, hitm, next } = step(state, event);
        let hitm = if hitm { ", a HITM" } else { "" };
        let (name, what) = (state.name(), event.name());
        text += &format!("| {name} | {what} | {}{hitm} | {} | {} |\n", service.name(), service.cost(), next.name());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::{Arbitration, Directory, Distance, Grant, Kind, Latencies, Outcome, Request};
    use super::*;
    use crate::costs::{CostSet, Costs};

    /// Two threads of a core, then a core each of the same domain, another domain, and another
    /// package: `pack:2 l3:2 core:2 pu:2`.
    const SELF: u32 = 0;
    const SIBLING: u32 = 1;
    const NEAR: u32 = 2;
    const DOMAIN: u32 = 4;
    const PACKAGE: u32 = 8;

    struct Line {
        directory: Directory,
        now: u64,
    }

    impl Line {
        /// A line in `state`.
        fn of(state: State) -> Self {
            let topology = hitm_topology::parse("pack:2 l3:2 core:2 pu:2").expect("a machine");
            let latencies = Latencies::new(&topology, &Costs::of(&topology, CostSet::Linux));
            let mut directory = Directory::new(latencies, Arbitration::LocalFirst, 1, 1);
            directory.grow(1, 0);
            let mut line = Self { directory, now: 0 };
            let before: &[(u32, Kind)] = match state {
                State::Uncached => &[],
                State::Own => &[(SELF, Kind::Load)],
                State::OwnModified => &[(SELF, Kind::Store)],
                State::Core => &[(SIBLING, Kind::Load), (SELF, Kind::Load)],
                State::Sibling => &[(SIBLING, Kind::Load)],
                State::Other => &[(NEAR, Kind::Load)],
                State::OtherModified => &[(PACKAGE, Kind::Rmw)],
                State::Shared => &[(DOMAIN, Kind::Store), (SELF, Kind::Load)],
                State::SharedByOthers => &[(DOMAIN, Kind::Store), (PACKAGE, Kind::Load)],
            };
            for &(cpu, kind) in before {
                line.access(cpu, kind);
            }
            assert_eq!(line.directory.seen_by(SELF, 0), state);
            line
        }

        /// An access long after the one before. The grant, unless it finds its line.
        fn access(&mut self, cpu: u32, kind: Kind) -> Option<Grant> {
            self.now += 10_000_000;
            if self.directory.hit(cpu, 0, kind, self.now).is_some() {
                return None;
            }
            self.directory.announce(0);
            let (time, way) = (self.now, self.directory.latencies().one_way);
            let request = Request { cpu, line: 0, kind, time, way, lead: 0, access: cpu, kernel: false, operation: 0 };
            let (outcome, _) = self.directory.arrive(request);
            self.directory.conclude(0);
            let Outcome::Granted(grant) = outcome else { panic!("the line is idle") };
            Some(grant)
        }
    }

    #[test]
    fn the_directory_does_what_the_table_says() {
        for (state, event) in State::ALL.iter().flat_map(|&state| Event::ALL.map(|event| (state, event))) {
            let kinds: &[Kind] = match event {
                Event::Load => &[Kind::Load],
                Event::Write => &[Kind::Store, Kind::Rmw],
                Event::Free => &[],
            };
            let said = step(state, event);
            for &kind in kinds {
                let mut line = Line::of(state);
                let grant = line.access(SELF, kind);
                let served = match grant.map(|grant| grant.miss.distance) {
                    None => Service::Hit,
                    Some(Distance::Memory | Distance::RemoteMemory) => Service::Memory,
                    Some(Distance::SameCore) => Service::Core,
                    Some(_) => match said.service {
                        // Distances are alike; the state before tells them apart.
                        copies @ (Service::Copy | Service::Invalidation | Service::Owner) => copies,
                        _ => panic!("{state:?}, {kind:?}: another core served it"),
                    },
                };
                let hitm = grant.is_some_and(|grant| grant.miss.dirty);
                let did = Step { service: served, hitm, next: line.directory.seen_by(SELF, 0) };
                assert_eq!(did, said, "{state:?}, {kind:?}");
                line.directory.check();
            }
            if event == Event::Free {
                let mut line = Line::of(state);
                line.directory.recycle(0, 0);
                assert_eq!((line.directory.seen_by(SELF, 0), said.service), (said.next, Service::Nothing), "{state:?}");
            }
        }
    }

    /// What others see when this CPU writes: their copies have gone.
    #[test]
    fn a_write_leaves_one_copy() {
        for state in State::ALL {
            let mut line = Line::of(state);
            line.access(SELF, Kind::Rmw);
            assert_eq!(line.directory.seen_by(SIBLING, 0), State::Sibling, "{state:?}");
            for other in [NEAR, DOMAIN, PACKAGE] {
                assert_eq!(line.directory.seen_by(other, 0), State::OtherModified, "{state:?}, {other}");
            }
        }
    }

    #[test]
    fn the_page_has_the_table() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/engine.md");
        let page = std::fs::read_to_string(page).expect("the page is there");
        assert!(page.contains(&table()), "docs/engine.md has another table than:\n{}", table());
    }
}
