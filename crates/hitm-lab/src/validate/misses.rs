//! What the model lacks where a prediction fails, and which independent source would settle it.

/// Prefixes of findings' names, and why these findings fail.
const LACKS: [(&str, &str); 10] = [
    (
        "load then CAS other half",
        "a line that two halves of an 8-socket machine share is invalidated at twice a hand-off, as between neighbours; what its node controllers do is not published: a store to a shared line across the halves, timed alone, would settle it",
    ),
    (
        "SOSP13 Opteron",
        "a broadcast waits for the farthest die, and is not lengthened by where the writer is: the study's own broadcasts grow with distance by 50 cycles. A probe trace of that machine would settle it; there is none of later ones that broadcast",
    ),
    (
        "one writer 79 readers",
        "readers wait until the copies of the other package are gone too, at twice a hand-off (from V2's other package). The two published figures contradict each other under one rule; a store to a line shared by both packages, timed at the store and at each reader on one Skylake, would settle it",
    ),
    (
        "load and CAS over add",
        "a failed compare-exchange is tried again before the line leaves. If it never were, the ratio would be above 6; hardware lies between. Successes a visit, by the counters of one client, would settle it",
    ),
    ("SOSP13 Xeon, adds over CAS adds", "as V6: failed compare-exchanges are cheaper here than on hardware"),
    (
        "SOSP13 Xeon",
        "the loads of many waiters after a release are nearly free here: the first of a socket fetches the line and each further one takes a nanosecond, as measured on a Skylake; Westmere's inclusive cache may serve them one by one. At 10 threads ticket and MCS are 2 % apart. One writer with 79 readers on that machine would settle it",
    ),
    (
        "plain increments, 4 CPUs",
        "stores to a line that is under way merge without end and cost what a hit costs: four CPUs take no longer than one, by 2 % more than the factor of two that is asked. How many stores to one line wait at a time, by the counters of one Skylake, would settle it",
    ),
    ("plain increments", "under fifo stores wait in one queue over all packages: these machines do not serve so"),
    (
        "scaling, order of the loops",
        "stores to a contended line take twice as long as measured at 56 threads, so they fall behind both guarded look-ups",
    ),
    (
        "adds on an AMD of four L3s",
        "the machine was not named: its clock and its hand-off inside a CCX are taken from a Genoa. What does not depend on that, four L3s over one, is 1.19 published",
    ),
];

/// Returns what the model lacks for a finding of this name.
#[must_use]
pub fn lacks(name: &str) -> Option<&'static str> {
    LACKS.iter().find(|(start, _)| name.starts_with(start)).map(|&(_, lacks)| lacks)
}
