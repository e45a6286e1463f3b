//! The text of `perf c2c report --stdio`, whole or as mails quote it.
//!
//! A line begins with a row that ends with its address: `0 1031 3927 3322 50 0 0xff28...`. Rows of
//! its places begin with shares in percent: five in reports of perf since 6.0, four before, three
//! in mails. Then come the offset in the line, in whole reports the node, the number of physical
//! addresses and the code's address, cycles, samples, in whole reports CPUs, and the symbol.

use super::{ImportError, Row, Rows};
use hitm_machine::Hitm;

/// Returns the rows of each report of a text.
pub(super) fn reports(text: &str) -> Result<Vec<Rows>, ImportError> {
    let mut reports: Vec<Rows> = Vec::new();
    let mut totals = [0; 3];
    let mut is_new = true;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim_start_matches(['>', ' ', '#', '|']);
        if line.contains("Distribution Pareto") {
            // The next report of the text.
            is_new = true;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        if let Some((address, of_line)) = head(&words) {
            if std::mem::take(&mut is_new) || reports.is_empty() {
                reports.push(Rows::new());
            }
            totals = of_line;
            reports.last_mut().expect("one was pushed").push((address, Vec::new()));
        } else if let Some(shares) = shares(&words) {
            let Some((_, rows)) = reports.last_mut().and_then(|rows| rows.last_mut()) else { continue };
            let row = row(&words[shares.len()..], &shares, totals)
                .ok_or_else(|| ImportError::Row(number + 1, format!("`{line}` is no row of a line; give it whole")))?;
            rows.push(row);
        }
    }
    reports.retain(|rows| rows.iter().any(|(_, rows)| !rows.is_empty()));
    Ok(reports)
}

/// Returns a line's address and its remote HITMs, local HITMs and stores that hit.
fn head(words: &[&str]) -> Option<(u64, [u64; 3])> {
    let (address, numbers) = words.split_last()?;
    let address = hexadecimal(address).filter(|&address| address >= 1 << 12)?;
    let numbers: Vec<u64> = numbers.iter().map(|word| count(word)).collect::<Option<_>>()?;
    match numbers[..] {
        [remote, local, stores] => Some((address, [remote, local, stores])),
        // The line's number comes first.
        [_, remote, local, hits, misses] => Some((address, [remote, local, hits + misses])),
        [_, remote, local, hits, misses, others] => Some((address, [remote, local, hits + misses + others])),
        _ => None,
    }
}

/// Returns a number of samples, or of cycles.
fn count(word: &str) -> Option<u64> {
    word.parse().ok().filter(|&number| number < MOST)
}

/// More than any report has: the sums of a whole text stay below 2^64.
const MOST: u64 = 1 << 36;

/// Bytes of the longest line that a report has: of two that move together, or of a family with
/// lines of 256 bytes.
const LONGEST: u64 = 256;

fn hexadecimal(word: &str) -> Option<u64> {
    u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()
}

/// Returns the shares that a row begins with.
fn shares(words: &[&str]) -> Option<Vec<f64>> {
    let share = |word: &&str| word.strip_suffix('%')?.parse::<f64>().ok().filter(|share| (0.0..=100.0).contains(share));
    let shares: Vec<f64> = words.iter().map_while(share).collect();
    (3..=5).contains(&shares.len()).then_some(shares)
}

fn row(words: &[&str], shares: &[f64], [remote, local, stores]: [u64; 3]) -> Option<Row> {
    let of = |share: f64, all: u64| (share / 100.0 * all as f64).round() as u64;
    let offset = hexadecimal(words.first()?).filter(|&offset| offset < LONGEST)?;
    // Of stores that hit and of stores that missed each has its own sum; only their total is known
    // where a mail has one column.
    let hitm = Hitm { remote: of(shares[0], remote), local: of(shares[1], local) };
    let own = Row { offset, hitm, stores: of(shares[2], stores), ..Row::default() };
    let mut rest = words[1..].iter().copied().peekable();
    if shares.len() == 3 {
        let cycles = rest.next()?.parse().ok().filter(|cycles| (0.0..MOST as f64).contains(cycles))?;
        let records = count(rest.next()?)?;
        let function = rest.next()?.to_owned();
        return Some(Row { cycles: (0.0, 0.0, cycles), records, function, location: "?".to_owned(), ..own });
    }
    // The node and the number of physical addresses, where the report has them.
    while rest.peek()?.parse::<u64>().is_ok() {
        rest.next();
    }
    let code = rest.next().filter(|word| hexadecimal(word).is_some())?;
    let mut number = || count(rest.next()?);
    let (remote, local, load) = (number()?, number()?, number()?);
    let (records, cpus) = (number()?, number()?);
    let mut symbol = rest.skip_while(|word| word.starts_with('['));
    let function = symbol.next()?.to_owned();
    let location = symbol.nth(1).filter(|place| place.contains(['+', ':'])).unwrap_or(code).to_owned();
    Some(Row {
        cycles: (remote as f64, local as f64, load as f64),
        records,
        cpus: cpus as u32,
        function,
        location,
        ..own
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_quoted_in_a_mail_is_read() {
        let text = "> 155 39 39 0xff14d52c4682d800\n> ------- \n> 43.23% 43.59% 0.00% 0x0 3489 415 _find_first_and_bit\n\
                    > 1.94% 0.00% 7.69% 0x0 5992 33 cpupri_set\n";
        let reports = reports(text).unwrap();
        let [(address, rows)] = &reports[0][..] else { panic!("{reports:?}") };
        assert_eq!((*address, rows.len()), (0xff14_d52c_4682_d800, 2));
        assert_eq!(rows[0].hitm, Hitm { remote: 67, local: 17 });
        assert_eq!(
            (rows[0].cycles, rows[0].records, rows[0].function.as_str()),
            ((0.0, 0.0, 3489.0), 415, "_find_first_and_bit")
        );
        assert_eq!((rows[1].stores, rows[1].hitm), (3, Hitm { remote: 3, local: 0 }));
    }

    #[test]
    fn a_whole_report_is_read() {
        let text = "Shared Cache Line Distribution Pareto\n  0 1031 3927 3322 50 0 0xff284d17b5c0fa00\n\
                    7.47% 3.23% 98.43% 0.00% 0.00% 0x8 1 1 0xffffffffa13478ac 12034 13166 7699 8149 160 [k] update_load_avg \
                    [kernel.kallsyms] update_load_avg+940 0 1\n";
        let reports = reports(text).unwrap();
        let row = &reports[0][0].1[0];
        assert_eq!(row.hitm, Hitm { remote: 77, local: 127 });
        assert_eq!((row.cycles, row.records, row.cpus), ((12034.0, 13166.0, 7699.0), 8149, 160));
        assert_eq!((row.function.as_str(), row.location.as_str()), ("update_load_avg", "update_load_avg+940"));
    }

    #[test]
    fn a_row_that_is_cut_is_said() {
        let text = "155 39 39 0xff14d52c4682d800\n43.23% 43.59% 0.00% 0x0\n";
        assert!(matches!(reports(text), Err(ImportError::Row(2, _))));
        // So is one whose numbers no report has: an offset outside of the line, too many samples.
        for row in ["0x1000 3489 415 f", "0x0 3489 18446744073709551615 f", "0x0 NaN 415 f"] {
            let text = format!("155 39 39 0xff14d52c4682d800\n43.23% 43.59% 0.00% {row}\n");
            assert!(matches!(reports(&text), Err(ImportError::Row(2, _))), "{row}");
        }
        let head = "18446744073709551615 39 39 0xff14d52c4682d800\n43.23% 43.59% 0.00% 0x0 3489 415 f\n";
        assert_eq!(reports(head), Ok(Vec::new()), "no head of a line");
    }
}
