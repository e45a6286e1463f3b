//! The service on `hitm`: hyper over the runtime's own sockets; a group per tenant, a latency class
//! for the critical one, and a deadline per critical request.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use hitm::compat::hyper::{HyperIo, HyperTimer};
use hitm::net::{TcpListener, TcpStream};
use hitm::{Builder, Group, Handle, NativeRuntime, Priority, SpawnOptions};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};

use crate::load::Addresses;
use crate::work;

/// The shortest turns, of a group and of a thread.
const SHORT: Duration = Duration::from_micros(100);

/// How the critical tenant comes before the batch tenant, which is fair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// It has a real-time priority.
    RealTime,
    /// It is fair too, with short turns and most of the weight.
    ShortTurns,
    /// It has a runtime of its own, with one thread, which has short turns of the operating system.
    Apart,
}

/// The service. Dropping it ends it.
#[derive(Debug)]
pub struct Service {
    runtime: NativeRuntime,
    /// The critical tenant's own runtime.
    _apart: Option<NativeRuntime>,
    /// Where the tenants listen.
    pub addresses: Addresses,
    /// The group of the batch tenant.
    pub batch: Group,
}

impl Service {
    /// Starts the service on so many CPUs, with a critical tenant of this class.
    ///
    /// # Errors
    /// When a socket cannot be made.
    ///
    /// # Panics
    /// When the runtime cannot be made.
    pub fn start(cpus: usize, class: Class) -> io::Result<Self> {
        let start = |builder: Builder| builder.build().unwrap_or_else(|error| panic!("{error}"));
        // By default it has all CPUs, and pins its threads.
        let has_all = std::thread::available_parallelism().is_ok_and(|all| all.get() == cpus);
        let builder = NativeRuntime::builder().metrics();
        let runtime = start(if has_all { builder } else { builder.cpus(cpus) });
        // Its thread shares the CPUs with the others, so it does not spin.
        let one_thread = NativeRuntime::builder().cpus(1).spin(Duration::ZERO).thread_slice(SHORT);
        let apart = (class == Class::Apart).then(|| start(one_thread));
        let handle = runtime.handle();
        let of_critical = apart.as_ref().map_or(handle, NativeRuntime::handle);
        let (critical, batch) = (of_critical.group("critical"), handle.group("batch"));
        let urgent = match class {
            Class::RealTime | Class::Apart => SpawnOptions::from(Priority::fifo(50)),
            Class::ShortTurns => {
                critical.weight(1_000).expect("a weight");
                critical.slice(SHORT).expect("a slice");
                SpawnOptions::from(Priority::fair(0))
            }
        };
        let urgent = urgent.within(&critical);
        let fair = SpawnOptions::from(Priority::fair(0)).within(&batch);
        let addresses = Addresses {
            critical: listen(of_critical, urgent.named("critical"), serve_critical)?,
            batch: listen(handle, fair.named("batch"), serve_batch)?,
        };
        Ok(Self { runtime, _apart: apart, addresses, batch })
    }

    /// Returns the handle of the batch tenant's runtime.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        self.runtime.handle()
    }
}

/// Accepts connections of a tenant; each is served by a task with the tenant's options.
fn listen<F>(
    handle: &Handle,
    options: SpawnOptions,
    serve: fn(Request<Incoming>) -> F,
) -> io::Result<std::net::SocketAddr>
where
    F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let _entered = handle.enter();
    let listener = TcpListener::bind(([127, 0, 0, 1], 0).into())?;
    let address = listener.local_addr()?;
    let connection = options.clone();
    hitm::spawn_with(options, async move {
        loop {
            match listener.accept().await {
                Ok((stream, _peer)) => drop(hitm::spawn_with(connection.clone(), serve_connection(stream, serve))),
                // Too many open files, for example: connections that end make room.
                Err(_) => hitm::sleep(Duration::from_millis(10)).await,
            }
        }
    });
    Ok(address)
}

async fn serve_connection<F>(stream: TcpStream, serve: fn(Request<Incoming>) -> F)
where
    F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let _without_it_answers_are_late = stream.set_nodelay(true);
    let answer = service_fn(move |request| async move { Ok::<_, Infallible>(serve(request).await) });
    let mut server = http1::Builder::new();
    server.timer(HyperTimer::new(&Handle::current()));
    // A client that leaves is no error of the service.
    let _left = server.serve_connection(HyperIo::new(stream), answer).await;
}

async fn serve_critical(request: Request<Incoming>) -> Response<Full<Bytes>> {
    let answer = async {
        if request.uri().path() == "/slow" {
            hitm::sleep(4 * work::DEADLINE).await;
        }
        work::compute(work::CRITICAL);
    };
    match hitm::timeout(work::DEADLINE, answer).await {
        Ok(()) => Response::new(Full::from("done")),
        Err(elapsed) => {
            let mut late = Response::new(Full::from(elapsed.to_string()));
            *late.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            late
        }
    }
}

async fn serve_batch(_request: Request<Incoming>) -> Response<Full<Bytes>> {
    work::batch(hitm::checkpoint).await;
    Response::new(Full::from("done"))
}
