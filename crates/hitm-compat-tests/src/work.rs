//! What the service does for a request, the same on every runtime.

use std::future::Future;
use std::time::{Duration, Instant};

/// What a request of the critical tenant computes.
pub const CRITICAL: Duration = Duration::from_micros(20);

/// A request of the batch tenant computes this long, [`BATCH_PIECES`] times.
pub const BATCH_PIECE: Duration = Duration::from_micros(100);

/// The number of pieces of a batch request. Between two of them, other tasks may run.
pub const BATCH_PIECES: u32 = 20;

/// A critical request whose answer takes longer is answered by 503.
pub const DEADLINE: Duration = Duration::from_millis(250);

/// Computes for `span`.
pub fn compute(span: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < span {
        std::hint::spin_loop();
    }
}

/// Computes what a batch request computes; `make_way` lets other tasks run.
pub async fn batch<F: Future<Output = ()>>(make_way: impl Fn() -> F) {
    for _ in 0..BATCH_PIECES {
        compute(BATCH_PIECE);
        make_way().await;
    }
}
