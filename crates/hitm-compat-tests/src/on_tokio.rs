//! The service on Tokio, for comparison: the same handlers and the same hyper. Tokio has neither
//! priorities nor groups, so both tenants are alike.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Response;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

use crate::load::Addresses;
use crate::work;

/// The service. Dropping it ends it.
#[derive(Debug)]
pub struct Service {
    /// Ends the tasks when it is dropped.
    _runtime: Runtime,
    /// The critical tenant's own runtime.
    _apart: Option<Runtime>,
    /// Where the tenants listen.
    pub addresses: Addresses,
}

impl Service {
    /// Starts the service on so many threads; with `apart`, the critical tenant has a runtime of
    /// its own, with one more thread.
    ///
    /// # Errors
    /// When a thread or a socket cannot be made.
    pub fn start(threads: usize, apart: bool) -> io::Result<Self> {
        let start = |threads| Builder::new_multi_thread().worker_threads(threads).enable_all().build();
        let (runtime, apart) = (start(threads)?, apart.then(|| start(1)).transpose()?);
        let critical = listen(apart.as_ref().unwrap_or(&runtime), || async {
            let answer = async { work::compute(work::CRITICAL) };
            // The critical tenant's deadline costs the same as on the other side.
            let _never_late = tokio::time::timeout(work::DEADLINE, answer).await;
        })?;
        let batch = listen(&runtime, || work::batch(tokio::task::yield_now))?;
        Ok(Self { _runtime: runtime, _apart: apart, addresses: Addresses { critical, batch } })
    }
}

fn listen<F>(runtime: &Runtime, serve: impl Fn() -> F + Clone + Send + 'static) -> io::Result<SocketAddr>
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0)))?;
    let address = listener.local_addr()?;
    runtime.spawn(async move {
        while let Ok((stream, _peer)) = listener.accept().await {
            let _without_it_answers_are_late = stream.set_nodelay(true);
            let serve = serve.clone();
            let answer = service_fn(move |_request| {
                let work = serve();
                async move {
                    work.await;
                    Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("done")))
                }
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
        }
    });
    Ok(address)
}
