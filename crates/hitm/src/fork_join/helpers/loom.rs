//! Model checks of the helpers' words: the answer is right when all have counted themselves, and no
//! helper comes back to another generation.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use expect_test::expect;
use hitm_loom::{Defect, FaultKind, Loom, Model, Op, Row, Site, require, table, thread};

use super::Helpers;

/// Two threads do `one` and `other`; then the answer must be `wanted`.
fn answered(
    property: &'static str,
    start: fn(&Helpers<Loom>),
    [one, other]: [fn(&Helpers<Loom>); 2],
    wanted: bool,
) -> Model {
    Model::new(property, move || {
        let helpers = Arc::new(Helpers::new(2));
        start(&helpers);
        let shared = helpers.clone();
        let other = thread::spawn(move || other(&shared));
        one(&helpers);
        other.join().expect("threads return");
        require(helpers.are_wanted() == wanted, format_args!("the answer is {}", !wanted));
    })
}

fn called(helpers: &Helpers<Loom>) {
    require(helpers.call(), "none is called");
}

/// A helper that has run its job searches again, while another one may be called and find a job.
fn one_searches() -> Model {
    let start = |helpers: &Helpers<Loom>| {
        called(helpers);
        helpers.find();
    };
    let calls = |helpers: &Helpers<Loom>| {
        if helpers.are_wanted() && helpers.call() {
            helpers.find();
        }
    };
    // Both helpers are there and none searches, or one has gone on to search.
    answered("no helper is wanted while one searches", start, [|helpers| helpers.search(), calls], false)
}

/// The only helper that searches finds a job, and another participant asks meanwhile.
fn none_searches() -> Model {
    let asks = |helpers: &Helpers<Loom>| _ = helpers.are_wanted();
    answered("a helper is wanted once none searches", called, [|helpers| helpers.find(), asks], true)
}

/// A helper goes while the other one finds a job.
fn one_goes() -> Model {
    let start = |helpers: &Helpers<Loom>| {
        called(helpers);
        helpers.find();
        called(helpers);
    };
    answered(
        "the last change of the count is answered",
        start,
        [
            |helpers| {
                helpers.find();
                helpers.search();
            },
            |helpers| {
                helpers.search();
                helpers.find();
                helpers.search();
                helpers.go();
            },
        ],
        false,
    )
}

/// A helper counts itself out and comes back, while the computation is to serve another task.
fn one_comes_back() -> Model {
    Model::new("no helper comes back to another generation", || {
        let helpers = Arc::new(Helpers::<Loom>::new(2));
        called(&helpers);
        let shared = helpers.clone();
        let helper = thread::spawn(move || {
            let generation = shared.generation();
            shared.go();
            shared.come(generation)
        });
        let is_renewed = helpers.renew(1);
        let has_come = helper.join().expect("threads return");
        require(!(is_renewed && has_come), "a helper comes back");
        require(helpers.are_wanted() != has_come, "the answer is wrong");
    })
}

fn models() -> [Model; 4] {
    [one_searches(), none_searches(), one_goes(), one_comes_back()]
}

#[test]
fn the_answer_is_right_once_all_have_counted_themselves() {
    for model in models() {
        model.check();
    }
}

#[test]
fn broken_answers_are_noticed() {
    let site = |op, order| Site::new("src/fork_join/helpers.rs", op, order);
    let row = |name, defect, model| Row { name, defect, model, caught_by: FaultKind::Property };
    let answer = site(Op::Store, Ordering::Relaxed);
    let rows = [
        row("the fences are left out", Defect::lose(site(Op::Fence, Ordering::SeqCst)), one_goes()),
        row("that one is wanted is not told", Defect::lose(answer.with(1)), none_searches()),
        row("that none is wanted is not told", Defect::lose(answer.with(0)), one_searches()),
        row(
            "a new generation is not counted",
            Defect::lose(site(Op::CompareExchange, Ordering::Relaxed)),
            one_comes_back(),
        ),
    ];
    expect![[r#"
        defect                          | property                                   | caught by
        the fences are left out         | the last change of the count is answered   | loom, property
        that one is wanted is not told  | a helper is wanted once none searches      | loom, property
        that none is wanted is not told | no helper is wanted while one searches     | loom, property
        a new generation is not counted | no helper comes back to another generation | loom, property
    "#]]
    .assert_eq(&table(&rows));
}
