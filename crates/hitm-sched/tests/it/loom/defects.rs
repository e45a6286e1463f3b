//! Every ordering, and every order of steps, that a promise of the mechanisms depends on: what
//! breaks without it, and which check reports that.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use expect_test::expect;
use hitm_loom::FaultKind::{Property, Race};
use hitm_loom::{Defect, FaultKind, Model, Op, Row, Site, table};

use super::{cpupri, overload, push_token};

fn row(name: &'static str, defect: Defect, model: Model, caught_by: FaultKind) -> Row {
    Row { name, defect, model, caught_by }
}

#[test]
fn broken_cpupri_is_noticed() {
    let site = |op, order| Site::new("src/linux/cpupri.rs", op, order);
    let count_entered = site(Op::Add, Release);
    let count_left = site(Op::Sub, Release);
    let bit_set = site(Op::Or, Relaxed);
    let bit_cleared = site(Op::And, Release);
    let rows = [
        row(
            "entered level's count, Relaxed",
            Defect::relax(count_entered),
            cpupri::one_enters(cpupri::WHOLE),
            Property,
        ),
        row("left level's count, Relaxed", Defect::relax(count_left), cpupri::one_rises(cpupri::WHOLE), Property),
        row("left level's bit, Relaxed", Defect::relax(bit_cleared), cpupri::one_rises(cpupri::WHOLE), Property),
        row("left level's bit, Relaxed", Defect::relax(bit_cleared), cpupri::one_moves(cpupri::WHOLE), Property),
        row(
            "counts loaded Relaxed",
            Defect::relax(site(Op::Load, Acquire).on::<i32>()),
            cpupri::one_rises(cpupri::WHOLE),
            Property,
        ),
        row(
            "bitmaps loaded Relaxed",
            Defect::relax(site(Op::Load, Acquire).on::<u64>()),
            cpupri::one_rises(cpupri::WHOLE),
            Property,
        ),
        row("count before bit", Defect::delay(bit_set, count_entered), cpupri::one_enters(cpupri::WHOLE), Property),
        row(
            "left before entered",
            Defect::delay(count_entered, count_left),
            cpupri::one_rises(cpupri::WHOLE),
            Property,
        ),
        row("left level's bit stays", Defect::lose(bit_cleared), cpupri::one_is_above(cpupri::WHOLE), Property),
        row("left level's count stays", Defect::lose(count_left), cpupri::comes_and_goes(cpupri::WHOLE), Property),
    ];
    expect![[r#"
        defect                         | property                                                              | caught by
        entered level's count, Relaxed | cpupri 3: a reader that sees a CPU's count sees its bit               | loom, property
        left level's count, Relaxed    | cpupri 4: no search fails while a CPU only becomes more urgent        | loom, property
        left level's bit, Relaxed      | cpupri 4: no search fails while a CPU only becomes more urgent        | loom, property
        left level's bit, Relaxed      | cpupri 2: a CPU that moves has its bit at one of the levels           | loom, property
        counts loaded Relaxed          | cpupri 4: no search fails while a CPU only becomes more urgent        | loom, property
        bitmaps loaded Relaxed         | cpupri 4: no search fails while a CPU only becomes more urgent        | loom, property
        count before bit               | cpupri 3: a reader that sees a CPU's count sees its bit               | loom, property
        left before entered            | cpupri 4: no search fails while a CPU only becomes more urgent        | loom, property
        left level's bit stays         | cpupri 5: no search finds a CPU at its level or above                 | loom, property
        left level's count stays       | cpupri 1: in a quiescent state counts and bits match the CPUs' levels | loom, property
    "#]]
    .assert_eq(&table(&rows));
}

#[test]
fn broken_forms_of_cpupri_are_noticed() {
    use cpupri::{COUNTS, STORED};
    let site = |op, order| Site::new("src/linux/cpupri.rs", op, order).on::<u8>();
    let counts = |op, order| Site::new("src/linux/cpupri.rs", op, order);
    let (entered, left) = (site(Op::Store, Release).with(1), site(Op::Store, Release).with(0));
    let bit_set = site(Op::Store, Relaxed).with(1);
    let fence = Site::new("src/linux/cpupri.rs", Op::Fence, SeqCst);
    let overload_fence = Site::new("src/linux/overload.rs", Op::Fence, SeqCst);
    let misses = cpupri::one_falls_while_another_searches;
    let rows = [
        row(
            "a part's count entered, Relaxed",
            Defect::relax(counts(Op::Add, Release)),
            cpupri::one_enters(COUNTS),
            Property,
        ),
        row(
            "a part's count left, Relaxed",
            Defect::relax(counts(Op::Sub, Release)),
            cpupri::one_rises(COUNTS),
            Property,
        ),
        row(
            "parts' counts loaded Relaxed",
            Defect::relax(counts(Op::Load, Acquire).on::<i32>()),
            cpupri::one_rises(COUNTS),
            Property,
        ),
        row(
            "a part's left before entered",
            Defect::delay(counts(Op::Add, Release), counts(Op::Sub, Release)),
            cpupri::one_rises(COUNTS),
            Property,
        ),
        row("a part's count stays", Defect::lose(counts(Op::Sub, Release)), cpupri::comes_and_goes(COUNTS), Property),
        row("entered bytes stored Relaxed", Defect::relax(entered), cpupri::one_enters(STORED), Property),
        row("left bytes stored Relaxed", Defect::relax(left), cpupri::one_rises(STORED), Property),
        row("bytes loaded Relaxed", Defect::relax(site(Op::Load, Acquire)), cpupri::one_rises(STORED), Property),
        row("count's byte before the set's", Defect::delay(bit_set, entered), cpupri::one_enters(STORED), Property),
        row("left bytes before entered", Defect::delay(entered, left), cpupri::one_rises(STORED), Property),
        row("left bytes stay", Defect::lose(left), cpupri::one_is_above(STORED), Property),
        row("no fence after a fall", Defect::lose(fence), misses(), Property),
        row("no fence after an overload", Defect::lose(overload_fence), misses(), Property),
    ];
    expect![[r#"
        defect                          | property                                                                 | caught by
        a part's count entered, Relaxed | cpupri 3: a reader that sees a CPU's count sees its bit                  | loom, property
        a part's count left, Relaxed    | cpupri 4: no search fails while a CPU only becomes more urgent           | loom, property
        parts' counts loaded Relaxed    | cpupri 4: no search fails while a CPU only becomes more urgent           | loom, property
        a part's left before entered    | cpupri 4: no search fails while a CPU only becomes more urgent           | loom, property
        a part's count stays            | cpupri 1: in a quiescent state counts and bits match the CPUs' levels    | loom, property
        entered bytes stored Relaxed    | cpupri 3: a reader that sees a CPU's count sees its bit                  | loom, property
        left bytes stored Relaxed       | cpupri 4: no search fails while a CPU only becomes more urgent           | loom, property
        bytes loaded Relaxed            | cpupri 4: no search fails while a CPU only becomes more urgent           | loom, property
        count's byte before the set's   | cpupri 3: a reader that sees a CPU's count sees its bit                  | loom, property
        left bytes before entered       | cpupri 4: no search fails while a CPU only becomes more urgent           | loom, property
        left bytes stay                 | cpupri 5: no search finds a CPU at its level or above                    | loom, property
        no fence after a fall           | cpupri 8: a less urgent CPU and an overloaded CPU do not miss each other | loom, property
        no fence after an overload      | cpupri 8: a less urgent CPU and an overloaded CPU do not miss each other | loom, property
    "#]].assert_eq(&table(&rows));
}

#[test]
fn broken_overload_is_noticed() {
    let site = |op, order| Site::new("src/linux/overload.rs", op, order);
    let count_added = site(Op::Add, Release);
    let rows = [
        row("count added Relaxed", Defect::relax(count_added), overload::one_sets(), Property),
        row("no fence after the count", Defect::lose(site(Op::Fence, Acquire)), overload::one_sets(), Property),
        row("count before bit", Defect::delay(site(Op::Or, Relaxed), count_added), overload::one_sets(), Property),
        row("bit stays", Defect::lose(site(Op::And, Relaxed)), overload::two_come_and_go(), Property),
        row("count is not added", Defect::lose(count_added), overload::never_negative(), Property),
    ];
    expect![[r#"
        defect                   | property                                                                                 | caught by
        count added Relaxed      | overload 3: a reader that sees a CPU's count, and fences, sees its bit                   | loom, property
        no fence after the count | overload 3: a reader that sees a CPU's count, and fences, sees its bit                   | loom, property
        count before bit         | overload 3: a reader that sees a CPU's count, and fences, sees its bit                   | loom, property
        bit stays                | overload 1: in a quiescent state the count and the bits are those of the overloaded CPUs | loom, property
        count is not added       | overload 2: no count is negative                                                         | loom, property
    "#]].assert_eq(&table(&rows));
}

#[test]
fn broken_push_tokens_are_noticed() {
    let site = |op, order| Site::new("src/linux/push_token.rs", op, order);
    let request = site(Op::Add, Release);
    let requests = site(Op::Load, Acquire).on::<u32>();
    let starter = push_token::a_request_meets_a_starter;
    let overload = Site::new("src/linux/overload.rs", Op::Add, Release);
    // A lock is taken where `lock()` is called, and released in its own file.
    let (lock, unlock) = (site(Op::Load, Acquire).on::<u16>(), Site::new("src/lock.rs", Op::Store, Release));
    let (claim, begin, end) = (site(Op::Or, Release), site(Op::And, Acquire), site(Op::CompareExchange, Relaxed));
    let (started, claims) = (site(Op::Store, Relaxed).on::<u32>(), push_token::two_claim);
    let rows = [
        row("request added Relaxed", Defect::relax(request), starter(), Property),
        row("requests loaded Relaxed", Defect::relax(requests), starter(), Property),
        row("overload's count Relaxed", Defect::relax(overload), push_token::a_request_for_another(), Property),
        row("request is not added", Defect::lose(request), push_token::a_request_meets_a_chain(), Property),
        row("start is not released", Defect::lose(started), push_token::a_request_meets_a_chain(), Property),
        row("`rto_lock` taken Relaxed", Defect::relax(lock), push_token::one_chain(), Race),
        row("`rto_lock` released Relaxed", Defect::relax(unlock), push_token::one_chain(), Race),
        row("work claimed Relaxed", Defect::relax(claim), claims(), Property),
        row("work begun Relaxed", Defect::relax(begin), claims(), Property),
        row("work is not begun", Defect::lose(begin), push_token::free_to_claim(), Property),
        row("work is not ended", Defect::lose(end.with(0)), push_token::nothing_left(), Property),
    ];
    expect![[r#"
        defect                      | property                                                                      | caught by
        request added Relaxed       | push token 3: a scan that accounts for a request sees the CPUs that it is for | loom, property
        requests loaded Relaxed     | push token 3: a scan that accounts for a request sees the CPUs that it is for | loom, property
        overload's count Relaxed    | push token 3: a scan that accounts for a request sees the CPUs that it is for | loom, property
        request is not added        | push token: no request is lost unless its starter leaves at step 2            | loom, property
        start is not released       | push token: no request is lost unless its starter leaves at step 2            | loom, property
        `rto_lock` taken Relaxed    | push token 1: at most one chain is under way                                  | loom, data race
        `rto_lock` released Relaxed | push token 1: at most one chain is under way                                  | loom, data race
        work claimed Relaxed        | push token 5: a CPU that finds the work claimed is served by a later run      | loom, property
        work begun Relaxed          | push token 5: a CPU that finds the work claimed is served by a later run      | loom, property
        work is not begun           | push token 4: the token's holder finds the work free to claim                 | loom, property
        work is not ended           | push token 2: with no chain under way, nothing is left of one                 | loom, property
    "#]].assert_eq(&table(&rows));
}
