//! What the machine needs of the library of coroutines: a thread of a program is a coroutine inside
//! that of its CPU, and the CPU is suspended from inside it.

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, ScopedCoroutine, Yielder};

// No `unsafe`: this is within the contract of the library, whose functions are all safe here.
#[test]
fn an_outer_coroutine_is_suspended_from_inside_an_inner_one() {
    let mut outer = Coroutine::new(|outer: &Yielder<u32, u32>, given: u32| {
        let code = |inner: &Yielder<u32, u32>, given: u32| {
            let second = outer.suspend(given + 1);
            let third = inner.suspend(second + 1);
            // An unwinding that ends here passes no frame of the outer one.
            let caught = std::panic::catch_unwind(|| std::panic::resume_unwind(Box::new(third)));
            outer.suspend(caught.expect_err("it unwinds").downcast_ref().map_or(0, |third: &u32| third + 1))
        };
        let thread: ScopedCoroutine<'_, u32, u32, u32, DefaultStack> = ScopedCoroutine::new(code);
        thread.scope(|mut thread| {
            let CoroutineResult::Yield(value) = thread.resume(given) else { panic!("it has not ended") };
            let CoroutineResult::Return(last) = thread.resume(value * 10) else { panic!("it has ended") };
            last
        })
    });
    let mut resume = |given| match outer.resume(given) {
        CoroutineResult::Yield(value) => (false, value),
        CoroutineResult::Return(value) => (true, value),
    };
    assert_eq!(resume(5), (false, 6));
    // 20 comes back to the inner one, 21 from it, and 210 to it.
    assert_eq!(resume(20), (false, 211));
    assert_eq!(resume(7), (true, 7));
}
