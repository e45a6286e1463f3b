//! Sleeping: never too short, in order, cancelled, for no time, and, where time is simulated, by
//! how much too long.

use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use hitm::sync::Futex;
use hitm::{CpuSet, Handle, Span, Time};
use hitm_memory::AtomicWord;
use hitm_topology::CpuId;

use crate::host::Host;
use crate::ledger::Ledger;
use crate::stage::{Diary, SAME, joined, on_first_cpu, pinned};

every_host!(
    never_early,
    no_time_is_not_slept,
    many_sleepers_end_in_order,
    a_sleep_that_was_dropped_is_forgotten,
    a_sleep_goes_on_elsewhere,
    a_timer_fires_where_the_sleep_began,
    a_sleeper_that_is_woken_sleeps_on,
    a_blocked_cpu_delays_no_sleep,
);

async fn never_early<H: Host>(handle: Handle<H>) {
    for micros in [1, 10, 100, 1_000, 3_000] {
        let (span, start) = (Span::from_micros(micros), handle.now());
        handle.sleep(span).await;
        assert!(handle.now().since(start) >= span, "{span}");
        let deadline = handle.now() + span;
        handle.sleep_until(deadline).await;
        assert!(handle.now() >= deadline, "{span}");
    }
}

async fn no_time_is_not_slept<H: Host>(handle: Handle<H>) {
    on_first_cpu(&handle, |handle| async move {
        let diary = Diary::new();
        let notes = diary.clone();
        // A task of the same priority, which would run if this task waited.
        let task = handle.spawn(pinned(crate::stage::SAME), async move { notes.note(()) });
        handle.sleep(Span::ZERO).await;
        handle.sleep_until(Time::START).await;
        assert_eq!(diary.take(), []);
        joined(task).await;
    })
    .await;
}

async fn many_sleepers_end_in_order<H: Host>(handle: Handle<H>) {
    let diary = Diary::new();
    let notes = diary.clone();
    let count = H::CROWD.min(500) as u64;
    on_first_cpu(&handle, move |handle| async move {
        let start = handle.now();
        let sleeper = |number: u64| {
            // Scattered deadlines; several of them are equal.
            let at = start + Span::from_micros(number * 7_919 % (count / 3 + 1) * 20);
            let (clock, notes) = (handle.clone(), notes.clone());
            handle.spawn(pinned(crate::stage::HIGH), async move {
                clock.sleep_until(at).await;
                assert!(clock.now() >= at);
                notes.note((at, number));
            })
        };
        let tasks: Vec<_> = (0..count).map(sleeper).collect();
        for task in tasks {
            joined(task).await;
        }
    })
    .await;
    let ends = diary.take();
    assert_eq!(ends.len() as u64, count);
    if H::TIMED {
        // One CPU's timers fire in order, and equal deadlines in the order in which the sleeps
        // began. A sleep that was over before it began is the exception, so natively the test does
        // not check the order.
        let late: Vec<_> = ends.windows(2).filter(|pair| pair[0].0 > pair[1].0).collect();
        assert!(late.len() < ends.len() / 4, "{late:?}");
    }
}

async fn a_sleep_that_was_dropped_is_forgotten<H: Host>(handle: Handle<H>) -> Ledger {
    let ledger = Ledger::default();
    for _ in 0..50 {
        let token = ledger.token();
        let mut long = pin!(async {
            let _token = token;
            handle.sleep(Span::from_micros(1_800_000_000)).await;
        });
        let mut short = pin!(handle.sleep(Span::from_micros(20)));
        poll_fn(|context| {
            assert!(long.as_mut().poll(context).is_pending());
            short.as_mut().poll(context)
        })
        .await;
    }
    // A sleep that is dropped on another CPU than the one where it began.
    let cpus = handle.topology().cpus() as u32;
    let clock = handle.clone();
    let mut sleep = Box::pin(async move { clock.sleep(Span::from_micros(1_800_000_000)).await });
    poll_fn(|context| Poll::Ready(sleep.as_mut().poll(context).is_pending())).await;
    let elsewhere = handle.spawn(crate::stage::on_cpu(cpus - 1, 5), async move { drop(sleep) });
    joined(elsewhere).await;
    if H::TIMED {
        assert!(handle.now() < Time::START + Span::from_micros(100_000), "{:?}", handle.now());
    }
    ledger
}

async fn a_sleep_goes_on_elsewhere<H: Host>(handle: Handle<H>) {
    let cpus: Vec<CpuId> = handle.topology().cpu_ids().collect();
    let clock = handle.clone();
    let task = handle.spawn((), async move {
        for (index, &cpu) in cpus.iter().chain(cpus.iter().rev()).enumerate() {
            clock.set_cpus(&CpuSet::from_iter([cpu]));
            clock.yield_now().await;
            assert_eq!(H::current_cpu(), cpu, "after move {index}");
            let deadline = clock.now() + Span::from_micros(30);
            let mut sleep = pin!(clock.sleep_until(deadline));
            poll_fn(|context| Poll::Ready(sleep.as_mut().poll(context))).await.is_ready();
            // The task migrates before the sleep ends.
            clock.set_cpus(&CpuSet::from_iter([cpus[(index + 1) % cpus.len()]]));
            sleep.await;
            assert!(clock.now() >= deadline);
        }
    });
    joined(task).await;
}

/// Records the CPU on which it is woken.
struct Notes<H> {
    cpu: AtomicU32,
    inner: Waker,
    host: PhantomData<fn() -> H>,
}

impl<H: Host> Wake for Notes<H> {
    fn wake(self: Arc<Self>) {
        self.cpu.store(H::current_cpu().0, Ordering::Relaxed);
        self.inner.wake_by_ref();
    }
}

async fn a_timer_fires_where_the_sleep_began<H: Host>(handle: Handle<H>) {
    let last = handle.topology().cpus() as u32 - 1;
    let clock = handle.clone();
    let task = handle.spawn(crate::stage::on_cpu(last, 5), async move {
        let mut sleep = pin!(clock.sleep(Span::from_micros(200)));
        let notes = poll_fn(|context| {
            let (cpu, inner) = (AtomicU32::new(u32::MAX), context.waker().clone());
            let notes = Arc::new(Notes::<H> { cpu, inner, host: PhantomData });
            let waker = Waker::from(notes.clone());
            assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            Poll::Ready(notes)
        })
        .await;
        clock.set_cpus(&CpuSet::from_iter([CpuId(0)]));
        // Until the timer has fired, another task has this CPU.
        while notes.cpu.load(Ordering::Relaxed) == u32::MAX {
            clock.compute(Span::from_micros(10)).await;
            assert_eq!(H::current_cpu(), CpuId(0));
        }
        assert_eq!(notes.cpu.load(Ordering::Relaxed), last);
    });
    joined(task).await;
}

async fn a_sleeper_that_is_woken_sleeps_on<H: Host>(handle: Handle<H>) {
    let clock = handle.clone();
    let span = Span::from_micros(500);
    let task = handle.spawn((), async move {
        let start = clock.now();
        let mut sleep = Box::pin(clock.sleep(span));
        let mut polls = 0;
        poll_fn(|context| {
            polls += 1;
            let poll = Pin::new(&mut sleep).poll(context);
            if poll.is_pending() && polls < 20 {
                context.waker().wake_by_ref();
            }
            poll
        })
        .await;
        assert!(clock.now().since(start) >= span);
    });
    task.unpark();
    joined(task).await;
}

/// Another CPU ends the sleeps of a CPU that a task blocks.
async fn a_blocked_cpu_delays_no_sleep<H: Host>(handle: Handle<H>) {
    if handle.topology().cpus() == 1 || !handle.diagnostics().is_shipped() {
        return;
    }
    let millis = |millis: u64| Span::from_micros(millis * 1_000);
    // Natively another program may have the CPU for long.
    let (span, patience) = if H::TIMED { (millis(1), millis(3)) } else { (millis(20), millis(4_000)) };
    let ended = Arc::new(Futex::new(&handle, 0));
    let (ends, clock) = (ended.clone(), handle.clone());
    on_first_cpu(&handle, |handle| async move {
        let everywhere = handle.topology().cpu_ids().collect();
        let sleeper = handle.spawn(pinned(SAME), async move {
            clock.set_cpus(&everywhere);
            clock.sleep(span).await;
            // Relaxed: a flag.
            ends.word().store(1, Ordering::Relaxed);
        });
        // The sleeper begins to sleep.
        handle.yield_now().await;
        let start = handle.now();
        // Relaxed: a flag.
        while ended.word().load(Ordering::Relaxed) == 0 {
            let waited = handle.now().since(start);
            assert!(waited < patience, "the sleep of {span} lasts {waited}");
        }
        joined(sleeper).await;
    })
    .await;
}
