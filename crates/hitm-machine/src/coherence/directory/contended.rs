//! What the directory keeps of a line that a second core has touched.

use super::super::copies::Copies;
use super::super::queue::Queue;

/// The state of a line beyond [`Line`](super::Line) once a second core has touched it.
#[derive(Clone, Debug)]
pub(super) struct Contended {
    pub(super) copies: Copies,
    pub(super) queue: Queue,
    /// The domains with copies, in order.
    pub(super) domains: Vec<DomainCopies>,
    /// Whether the caller has been asked to decide.
    pub(super) decision_due: bool,
}

/// The copies of a line in one LLC domain.
#[derive(Clone, Copy, Debug)]
pub(super) struct DomainCopies {
    pub(super) domain: u32,
    pub(super) count: u32,
    /// When the first of them arrived.
    pub(super) since: u64,
    /// When the domain can serve its next reader.
    pub(super) next_refill: u64,
}

impl DomainCopies {
    /// One copy, which arrives at `at`.
    fn one(domain: usize, at: u64) -> Self {
        Self { domain: domain as u32, count: 1, since: at, next_refill: at }
    }
}

impl Contended {
    /// A line with one copy, in `domain`, that arrived at `at`.
    pub(super) fn new(copies: Copies, queue: Queue, domain: usize, at: u64) -> Self {
        let domains = vec![DomainCopies::one(domain, at)];
        Self { copies, queue, domains, decision_due: false }
    }

    /// The copies in a domain, if it has any.
    #[inline]
    pub(super) fn in_domain(&mut self, domain: usize) -> Option<&mut DomainCopies> {
        self.domains.iter_mut().find(|copies| copies.domain as usize == domain)
    }

    /// A domain gets a copy at `at`: one more, or its first.
    #[inline]
    pub(super) fn add_in(&mut self, domain: usize, at: u64) {
        match self.in_domain(domain) {
            Some(here) => here.count += 1,
            None => self.add_domain(domain, at),
        }
    }

    /// A domain that has none gets its first copy at `at`.
    pub(super) fn add_domain(&mut self, domain: usize, at: u64) {
        let place = self.domains.partition_point(|copies| (copies.domain as usize) < domain);
        self.domains.insert(place, DomainCopies::one(domain, at));
    }

    /// A domain gets the only copy at `at`.
    #[inline]
    pub(super) fn has_alone(&mut self, domain: usize, at: u64) {
        self.domains.truncate(1);
        match self.domains.first_mut() {
            Some(copies) => *copies = DomainCopies::one(domain, at),
            None => self.domains.push(DomainCopies::one(domain, at)),
        }
    }
}
