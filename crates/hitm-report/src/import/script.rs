//! Samples of memory accesses, as `perf script` prints those of `perf mem` and `perf c2c record`.
//!
//! Of each sample these are read, in this order: the event, whose name tells loads from stores, the
//! address of the data, the words of its source (`|SNP HitM|`, `|LVL Remote ...|`), the weight in
//! cycles, the address of the code, and its symbol.

use std::collections::BTreeMap;

use hitm_machine::Hitm;

use super::{ImportError, LINE, Row, Rows};

/// Sums of one place.
#[derive(Default)]
struct Sum {
    hitm: Hitm,
    hitm_cycles: (f64, f64),
    other_cycles: f64,
    loads: u64,
    stores: u64,
    cpus: std::collections::BTreeSet<u64>,
    location: String,
}

/// Returns the rows of the samples; `None` if the text has none.
pub(super) fn samples(text: &str) -> Result<Option<Rows>, ImportError> {
    let mut sums: BTreeMap<(u64, u64, String), Sum> = BTreeMap::new();
    for (number, line) in text.lines().enumerate() {
        let Some((is_store, rest)) = event(line) else { continue };
        let sample = sample(rest).ok_or_else(|| ImportError::Row(number + 1, NOT_WHOLE.to_owned()))?;
        let Sample { address, source, weight, function, location } = sample;
        if address == 0 {
            // The processor did not say what was accessed.
            continue;
        }
        let sum = sums.entry((address & !(LINE - 1), address % LINE, function)).or_default();
        sum.location = location;
        sum.cpus.extend(cpu(line));
        let is_hitm = source.contains("hitm") && !source.contains("snp none");
        match (is_store, is_hitm) {
            (true, _) => sum.stores += 1,
            (false, true) if source.contains("remote") || source.contains("hops") => {
                sum.hitm.remote += 1;
                sum.hitm_cycles.0 += weight;
            }
            (false, true) => {
                sum.hitm.local += 1;
                sum.hitm_cycles.1 += weight;
            }
            (false, false) => {
                sum.loads += 1;
                sum.other_cycles += weight;
            }
        }
    }
    let mut lines: BTreeMap<u64, Vec<Row>> = BTreeMap::new();
    for ((line, offset, function), sum) in sums {
        let mean = |cycles: f64, times: u64| if times > 0 { cycles / times as f64 } else { 0.0 };
        lines.entry(line).or_default().push(Row {
            offset,
            function,
            location: sum.location,
            hitm: sum.hitm,
            stores: sum.stores,
            records: sum.loads + sum.stores + sum.hitm.both(),
            cycles: (
                mean(sum.hitm_cycles.0, sum.hitm.remote),
                mean(sum.hitm_cycles.1, sum.hitm.local),
                mean(sum.other_cycles, sum.loads),
            ),
            cpus: sum.cpus.len() as u32,
        });
    }
    Ok((!lines.is_empty()).then(|| lines.into_iter().collect()))
}

/// What is wrong with a sample that is cut, or printed with other fields.
const NOT_WHOLE: &str = "a sample without address, weight and code, or cut short; \
                         print it with `perf script -F comm,tid,cpu,time,event,addr,data_src,weight,ip,sym`";

/// Returns whether a line is a sample of stores, and what follows the event's name.
fn event(line: &str) -> Option<(bool, &str)> {
    let of = |name: &str| line.find(name).map(|at| &line[at + name.len()..]);
    let (is_store, rest) = match (of("mem-loads"), of("mem-stores")) {
        (Some(rest), _) => (false, rest),
        (None, Some(rest)) => (true, rest),
        (None, None) => return None,
    };
    Some((is_store, rest.split_once(": ").map_or(rest, |(_, rest)| rest)))
}

/// Returns the CPU of a sample: `[012]`.
fn cpu(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once('[')?;
    rest.split_once(']')?.0.parse().ok()
}

struct Sample {
    address: u64,
    source: String,
    weight: f64,
    function: String,
    location: String,
}

fn sample(rest: &str) -> Option<Sample> {
    let (before, source, after) = match (rest.find('|'), rest.rfind('|')) {
        (Some(first), Some(last)) if first < last => (&rest[..first], &rest[first..last], &rest[last + 1..]),
        _ => (rest, "", ""),
    };
    let mut words = before.split_whitespace().chain(after.split_whitespace());
    let address = words.next().and_then(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok())?;
    let mut rest: Vec<&str> = words.collect();
    // The encoded source stands before its words.
    if !before.trim().is_empty() && before.split_whitespace().count() > 1 {
        rest.remove(0);
    }
    // After the words of the source there may be what they say of blocks: `N/A`.
    let at = rest.iter().position(|word| word.parse::<u64>().is_ok())?;
    let weight = rest[at].parse().ok()?;
    let code = rest.get(at + 1)?;
    let symbol = rest.get(at + 2).copied().unwrap_or("-");
    let function = symbol.split_once("+0x").map_or(symbol, |(name, _)| name).to_owned();
    Some(Sample { address, source: source.to_lowercase(), weight, function, location: format!("0x{code}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_summed_by_line_offset_and_function() {
        let text = "\
ffmpeg  1234 [012] 5123.1:  1 cpu/mem-loads,ldlat=30/P: ff14d52c4682d808 1026a100142 |OP LOAD|LVL L3 hit|SNP HitM|TLB L1 hit|LCK No|BLK  N/A 345 ffffffffa134934e update_cfs_group+0x4e ([kernel.kallsyms])
ffmpeg  1235 [200] 5123.2:  1 cpu/mem-loads,ldlat=30/P: ff14d52c4682d808 1026a100142 |OP LOAD|LVL Remote Cache (1 hop) hit|SNP HitM|TLB L1 hit|LCK No|BLK  N/A 1200 ffffffffa134934e update_cfs_group+0x4e ([kernel.kallsyms])
ffmpeg  1235 [200] 5123.3:  1 cpu/mem-stores/P: ff14d52c4682d800 5080022 |OP STORE|LVL L1 hit|SNP N/A|TLB N/A|LCK N/A|BLK  N/A 0 ffffffffa13478ac update_load_avg+0x3ac ([kernel.kallsyms])
";
        let rows = samples(text).unwrap().unwrap();
        let [(line, rows)] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!((*line, rows.len()), (0xff14_d52c_4682_d800, 2));
        assert_eq!((rows[0].stores, rows[0].function.as_str()), (1, "update_load_avg"));
        assert_eq!((rows[1].hitm, rows[1].cpus), (Hitm { local: 1, remote: 1 }, 2));
        assert_eq!(rows[1].cycles, (1200.0, 345.0, 0.0));
    }

    #[test]
    fn a_sample_that_is_cut_or_has_no_weight_is_said() {
        let whole = "ffmpeg  1234 [012] 5123.1:  1 cpu/mem-loads,ldlat=30/P: ff14d52c4682d808 1026a100142 |OP LOAD|SNP HitM| 345 ffffffffa134934e f+0x4e";
        assert!(samples(whole).unwrap().is_some());
        let without = "ffmpeg  1234 [012] 5123.1:  1 cpu/mem-loads,ldlat=30/P: ffffffffa134934e f+0x4e";
        for cut in [&whole[..whole.len() - 25], without] {
            assert!(matches!(samples(&format!("{whole}\n{cut}\n")), Err(ImportError::Row(2, _))), "{cut}");
        }
        let unknown = whole.replace("ff14d52c4682d808", "0");
        assert_eq!(samples(&unknown), Ok(None), "nothing is known of what was accessed");
    }
}
