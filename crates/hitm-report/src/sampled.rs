//! A run's lines as `perf c2c` counts them on hardware, to stand beside a published report.
//!
//! `perf c2c` counts HITMs of loads only. It samples loads by their latency, and a
//! read-modify-write is sampled less often than a load: in published reports of lines with both, a
//! tenth to a fifth as often. Here that part is given. Stores and waits of stores are as counted.

use hitm_machine::{Hitm, Kind};

use crate::result::{Line, Run, Site};

/// Returns `run` with this part of its read-modify-writes sampled as loads.
///
/// A read-modify-write becomes a load, counted in part, and a store that waits for nothing.
#[must_use]
pub fn sampled(run: &Run, locked: f64) -> Run {
    Run { lines: run.lines.iter().map(|line| sampled_line(line, locked)).collect(), ..run.clone() }
}

fn sampled_line(line: &Line, locked: f64) -> Line {
    let mut line = line.clone();
    for field in &mut line.fields {
        let locked_ones = field.sites.iter().filter(|site| site.kind == Some(Kind::Rmw));
        let left_out: u64 =
            locked_ones.map(|site| site.hits + site.misses - part(site.hits + site.misses, locked)).sum();
        field.sites = field.sites.drain(..).flat_map(|site| sides(site, locked)).collect();
        field.hitm = field.sites.iter().map(|site| site.hitm).sum();
        field.touched.loads -= left_out;
        line.touched.loads -= left_out;
    }
    line.hitm = line.fields.iter().map(|field| field.hitm).sum();
    line.misses = line.fields.iter().flat_map(|field| &field.sites).map(|site| site.misses).sum();
    line
}

/// Returns what is counted of a place: one side of a load or a store, both of a read-modify-write.
fn sides(site: Site, locked: f64) -> Vec<Site> {
    let part = |count| part(count, locked);
    let both = |counts: (u64, u64)| (part(counts.0), part(counts.1));
    match site.kind {
        Some(Kind::Store) => vec![Site { hitm: Hitm::default(), ..site }],
        Some(Kind::Rmw) => {
            let load = Site {
                kind: Some(Kind::Load),
                hits: part(site.hits),
                misses: part(site.misses),
                hitm: Hitm { local: part(site.hitm.local), remote: part(site.hitm.remote) },
                clean: both(site.clean),
                memory: both(site.memory),
                ..site.clone()
            };
            let cycles = (0.0, 0.0, 0.0);
            vec![load, Site { kind: Some(Kind::Store), hitm: Hitm::default(), cycles, ..site }]
        }
        _ => vec![site],
    }
}

fn part(count: u64, locked: f64) -> u64 {
    (count as f64 * locked).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::ResultFile;

    /// A saved run of ffmpeg, with loads, stores and read-modify-writes on each line.
    fn saved() -> Run {
        let text = include_str!("../../../results/ffmpeg.json");
        ResultFile::read(text).expect("a saved result").runs.swap_remove(0)
    }

    fn sum(run: &Run, what: impl Fn(&Site) -> u64) -> u64 {
        run.lines.iter().flat_map(Line::places).map(|(_, site)| what(site)).sum()
    }

    #[test]
    fn a_part_of_the_locked_operations_is_sampled_and_no_store_is_a_hitm() {
        let run = saved();
        let of = |run: &Run, kind: Kind, what: fn(&Site) -> u64| {
            sum(run, |site| if site.kind == Some(kind) { what(site) } else { 0 })
        };
        let hitms = |site: &Site| site.hitm.both();
        let (loads, locked) = (of(&run, Kind::Load, hitms), of(&run, Kind::Rmw, hitms));
        assert!(loads > 1_000 && locked > 1_000 && of(&run, Kind::Store, hitms) > 0, "{loads} {locked}");
        for weight in [0.0, 0.15, 1.0] {
            let seen = sampled(&run, weight);
            let expect = loads as f64 + weight * locked as f64;
            let given = of(&seen, Kind::Load, hitms) as f64;
            // Each place is rounded.
            assert!((given - expect).abs() < 100.0, "{weight}: {given} of {expect}");
            assert_eq!(of(&seen, Kind::Store, hitms) + of(&seen, Kind::Rmw, hitms), 0);
            assert_eq!(seen.lines.iter().map(|line| line.hitm.both()).sum::<u64>() as f64, given);
            let stores = |run: &Run| run.lines.iter().map(|line| line.touched.stores).sum::<u64>();
            assert_eq!(stores(&seen), stores(&run));
        }
        let waited = |run: &Run| run.lines.iter().map(Line::waited).sum::<f64>();
        assert!((waited(&sampled(&run, 1.0)) / waited(&run) - 1.0).abs() < 1e-9, "all of them wait as they did");
    }
}
