//! The waiters of a line, and which of them is next.
//!
//! `local-first` has one queue per LLC domain. `fifo` has a single one, which is the same rule with
//! one domain. The line is in one domain, its *place*. Requests of that domain are served in order
//! of arrival. All others together have one entry in that order, the *token*. When the token is
//! reached, the line moves to the domain of the oldest of them. The token enters at the tail: when
//! the line arrives while requests wait elsewhere, or when the first request from elsewhere
//! arrives. (The home keeps one snoop of a line under way, and the domain that owns the line orders
//! it among its own requests.)
//!
//! With a bound K a domain serves its own requests, also those that arrive later than requests from
//! elsewhere, up to K in a row.

use std::collections::VecDeque;

use super::Request;

/// The waiting requests of one line.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    /// By domain; empty until a request waits, which it never does for most lines.
    waiting: Box<[VecDeque<Waiting>]>,
    domains: u32,
    count: u32,
    place: u32,
    /// The number of requests of the place that are served before those from elsewhere have their
    /// turn; `None` while no CPU waits elsewhere.
    token: Option<u32>,
    /// The number of its own requests that a domain serves in a row, whenever they arrived; `None`
    /// for the order of arrival.
    bound: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    request: Request,
    /// The order of arrival over the machine.
    ticket: u64,
}

impl Queue {
    /// A queue without waiters; the line is in domain `place` of `domains`. See [`Self::bound`].
    pub(super) fn new(domains: usize, place: usize, bound: Option<u32>) -> Self {
        Self { waiting: Box::default(), domains: domains as u32, count: 0, place: place as u32, token: None, bound }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The line has moved to `place` while no CPU waited.
    pub(super) fn move_to(&mut self, place: usize) {
        debug_assert!(self.is_empty(), "a line that is waited for moves by `pop`");
        self.place = place as u32;
    }

    /// How many requests of the place wait.
    fn own(&self) -> u32 {
        self.waiting[self.place as usize].len() as u32
    }

    pub(super) fn push(&mut self, domain: usize, request: Request, ticket: u64) {
        if self.waiting.is_empty() {
            self.waiting = vec![VecDeque::new(); self.domains as usize].into();
        }
        if domain != self.place as usize && self.token.is_none() {
            self.token = Some(self.bound.unwrap_or(self.own()));
        }
        self.waiting[domain].push_back(Waiting { request, ticket });
        self.count += 1;
    }

    /// Returns the domain whose first request is next.
    fn next_domain(&self) -> Option<usize> {
        if self.count == 0 {
            return None;
        }
        let place = self.place as usize;
        let own_first = self.token != Some(0) && self.own() > 0;
        if own_first {
            return Some(place);
        }
        let oldest = |&domain: &usize| self.waiting[domain].front().map_or(u64::MAX, |waiting| waiting.ticket);
        (0..self.waiting.len()).filter(|&domain| domain != place).min_by_key(oldest)
    }

    /// Returns the next request.
    pub(super) fn peek(&self) -> Option<&Request> {
        self.waiting[self.next_domain()?].front().map(|waiting| &waiting.request)
    }

    /// Removes the next request; the line moves to its domain.
    pub(super) fn pop(&mut self) -> Option<Request> {
        let domain = self.next_domain()?;
        let waiting = self.waiting[domain].pop_front()?;
        self.count -= 1;
        if domain == self.place as usize {
            self.token = self.token.map(|before| before - 1);
        } else {
            self.place = domain as u32;
            let own = self.own();
            // The request for which the line moves is the first of its domain's turn.
            self.token = (self.count > own).then_some(self.bound.map_or(own, |bound| bound - 1));
        }
        Some(waiting.request)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, NO_ACCESS};
    use super::*;

    /// Pushes `(domain, cpu)` pairs, pops all, and returns the CPUs in order of service.
    fn order(place: usize, domains: usize, arrivals: &[(usize, u32)]) -> Vec<u32> {
        order_bounded(place, domains, None, arrivals)
    }

    fn order_bounded(place: usize, domains: usize, bound: Option<u32>, arrivals: &[(usize, u32)]) -> Vec<u32> {
        let mut queue = Queue::new(domains, place, bound);
        for (ticket, &(domain, cpu)) in arrivals.iter().enumerate() {
            let request = Request {
                cpu,
                line: 0,
                kind: Kind::Rmw,
                time: 0,
                way: 0,
                lead: 0,
                access: NO_ACCESS,
                kernel: false,
                operation: 0,
            };
            queue.push(domain, request, ticket as u64);
        }
        std::iter::from_fn(|| queue.pop()).map(|request| request.cpu).collect()
    }

    #[test]
    fn one_domain_is_fifo() {
        assert_eq!(order(0, 1, &[(0, 3), (0, 1), (0, 2)]), [3, 1, 2]);
    }

    #[test]
    fn a_domain_serves_its_own_up_to_the_token() {
        // 10 arrives from elsewhere after 1 and before 2. It has one turn; then the line is in
        // domain 1 and serves 11 and 12, which arrived last, before it comes back to 2.
        assert_eq!(order(0, 2, &[(0, 1), (1, 10), (0, 2), (1, 11), (1, 12)]), [1, 10, 11, 12, 2]);
    }

    #[test]
    fn a_bound_ends_a_domains_turn() {
        let arrivals = [(0, 1), (0, 2), (0, 3), (1, 10), (1, 11), (1, 12)];
        assert_eq!(order_bounded(0, 2, Some(2), &arrivals), [1, 2, 10, 11, 3, 12]);
        assert_eq!(order_bounded(0, 2, Some(1), &arrivals), [1, 10, 2, 11, 3, 12]);
    }

    #[test]
    fn within_a_bound_who_comes_later_goes_first() {
        let arrivals = [(0, 1), (1, 10), (0, 2), (0, 3)];
        assert_eq!(order(0, 2, &arrivals), [1, 10, 2, 3]);
        assert_eq!(order_bounded(0, 2, Some(8), &arrivals), [1, 2, 3, 10]);
    }

    #[test]
    fn the_oldest_outside_request_decides_where_the_line_goes() {
        assert_eq!(order(0, 3, &[(2, 20), (1, 10), (0, 1), (2, 21)]), [20, 21, 10, 1]);
    }

    #[test]
    fn nobody_is_forgotten() {
        let arrivals: Vec<(usize, u32)> = (0..60).map(|cpu| ((cpu as usize * 7) % 5, cpu)).collect();
        let mut served = order(3, 5, &arrivals);
        served.sort_unstable();
        assert_eq!(served, (0..60).collect::<Vec<u32>>());
    }
}
