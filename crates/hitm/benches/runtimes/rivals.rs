//! The runtimes behind one interface: the minimum that the cases need.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};
use std::time::Duration;

use hitm::sync::Queue;
use hitm::{NativeRuntime, Priority, SpawnOptions};
use hitm_memory::Native;

/// Returns the number of CPUs that this process may use.
pub(crate) fn threads() -> usize {
    // Asked once, by the main thread: a worker that is pinned may use one CPU.
    static CPUS: LazyLock<usize> = LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from));
    *CPUS
}

/// A task that is joined by awaiting it. It does not panic.
pub(crate) struct Joined<J>(J);

impl<J: Future<Output = Result<u64, E>> + Unpin, E: std::fmt::Debug> Future for Joined<J> {
    type Output = u64;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<u64> {
        Pin::new(&mut self.0).poll(context).map(|result| result.expect("it does not panic"))
    }
}

/// A bounded queue of numbers.
pub(crate) trait Pipe: Clone + Send + Sync + 'static {
    fn send(&self, item: u64) -> impl Future<Output = ()> + Send;
    fn recv(&self) -> impl Future<Output = u64> + Send;
}

/// Where a runtime runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Alone, with as many threads as all runtimes have.
    Alone,
    /// With one thread, beside another runtime that has as many as there are CPUs.
    Beside,
}

impl Place {
    fn threads(self) -> usize {
        match self {
            Self::Alone => threads(),
            Self::Beside => 1,
        }
    }
}

/// A runtime.
pub(crate) trait Rival: Sized + 'static {
    /// The handle that tasks use.
    type Handle: Clone + Send + Sync + 'static;
    type Join: Future<Output = u64> + Send + 'static;
    type Pipe: Pipe;

    fn start() -> Self {
        Self::start_at(Place::Alone)
    }

    fn start_beside() -> Self {
        Self::start_at(Place::Beside)
    }

    fn start_at(place: Place) -> Self;

    fn run<F>(&self, main: impl FnOnce(Self::Handle) -> F) -> u64
    where
        F: Future<Output = u64> + Send + 'static;

    /// As `run`, with the priority of the other tasks: equals take each other's place.
    fn run_as_others<F>(&self, main: impl FnOnce(Self::Handle) -> F) -> u64
    where
        F: Future<Output = u64> + Send + 'static,
    {
        self.run(main)
    }

    fn spawn(handle: &Self::Handle, future: impl Future<Output = u64> + Send + 'static) -> Self::Join;

    /// Lets a task go on that is not joined.
    fn detach(task: Self::Join) {
        drop(task);
    }

    fn yield_now(handle: &Self::Handle) -> impl Future<Output = ()> + Send;
    /// Makes a queue with this capacity.
    fn pipe(handle: &Self::Handle, capacity: usize) -> Self::Pipe;
}

/// hitm. Tasks all have one real-time priority, or are fair.
pub(crate) struct Hitm<const FAIR: bool = false>(NativeRuntime);

impl Pipe for Arc<Queue<Native, u64>> {
    async fn send(&self, item: u64) {
        Queue::send(self, item).await.expect("it is open");
    }

    async fn recv(&self) -> u64 {
        Queue::recv(self).await.expect("it is open")
    }
}

impl<const FAIR: bool> Hitm<FAIR> {
    pub(crate) fn spawn_with(
        handle: &<Self as Rival>::Handle,
        options: SpawnOptions,
        future: impl Future<Output = u64> + Send + 'static,
    ) -> <Self as Rival>::Join {
        Joined(handle.spawn(options, future))
    }
}

impl<const FAIR: bool> Rival for Hitm<FAIR> {
    type Handle = hitm::Handle<Native>;
    type Join = Joined<hitm::JoinHandle<Native, u64>>;
    type Pipe = Arc<Queue<Native, u64>>;

    fn start_at(place: Place) -> Self {
        let runtime = match place {
            // As a program gets it by default: each thread is pinned to a CPU.
            Place::Alone => NativeRuntime::this_machine(),
            Place::Beside => {
                // It does not know that there are more threads than CPUs now.
                let builder = NativeRuntime::builder().cpus(1).spin(Duration::ZERO);
                builder.thread_slice(Duration::from_micros(100)).build()
            }
        };
        Self(runtime.expect("threads"))
    }

    fn run<F>(&self, main: impl FnOnce(Self::Handle) -> F) -> u64
    where
        F: Future<Output = u64> + Send + 'static,
    {
        self.0.run(main).expect("it does not panic")
    }

    fn run_as_others<F>(&self, main: impl FnOnce(Self::Handle) -> F) -> u64
    where
        F: Future<Output = u64> + Send + 'static,
    {
        let handle = self.0.handle();
        if FAIR { futures_lite::future::block_on(Self::spawn(handle, main(handle.clone()))) } else { self.run(main) }
    }

    fn spawn(handle: &Self::Handle, future: impl Future<Output = u64> + Send + 'static) -> Self::Join {
        let options = if FAIR { Priority::fair(0).into() } else { SpawnOptions::default() };
        Self::spawn_with(handle, options, future)
    }

    async fn yield_now(handle: &Self::Handle) {
        handle.yield_now().await;
    }

    fn pipe(handle: &Self::Handle, capacity: usize) -> Self::Pipe {
        Arc::new(Queue::new(handle, capacity))
    }
}

pub(crate) struct Tokio(tokio::runtime::Runtime);

/// Both ends of Tokio's channel; the receiver is behind its own mutex, which is uncontended.
#[derive(Clone)]
pub(crate) struct TokioPipe {
    sender: tokio::sync::mpsc::Sender<u64>,
    receiver: Arc<tokio::sync::Mutex<tokio::sync::mpsc::Receiver<u64>>>,
}

impl Pipe for TokioPipe {
    async fn send(&self, item: u64) {
        self.sender.send(item).await.expect("it is open");
    }

    async fn recv(&self) -> u64 {
        self.receiver.lock().await.recv().await.expect("it is open")
    }
}

impl Rival for Tokio {
    type Handle = tokio::runtime::Handle;
    type Join = Joined<tokio::task::JoinHandle<u64>>;
    type Pipe = TokioPipe;

    fn start_at(place: Place) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(place.threads()).enable_time().build();
        Self(runtime.expect("threads"))
    }

    fn run<F>(&self, main: impl FnOnce(Self::Handle) -> F) -> u64
    where
        F: Future<Output = u64> + Send + 'static,
    {
        let task = self.0.spawn(main(self.0.handle().clone()));
        self.0.block_on(task).expect("it does not panic")
    }

    fn spawn(handle: &Self::Handle, future: impl Future<Output = u64> + Send + 'static) -> Self::Join {
        Joined(handle.spawn(future))
    }

    async fn yield_now(_: &Self::Handle) {
        tokio::task::yield_now().await;
    }

    fn pipe(_: &Self::Handle, capacity: usize) -> Self::Pipe {
        let (sender, receiver) = tokio::sync::mpsc::channel(capacity);
        TokioPipe { sender, receiver: Arc::new(tokio::sync::Mutex::new(receiver)) }
    }
}

/// Threads that run an executor until this is dropped.
struct Threads {
    stop: async_channel::Sender<()>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Threads {
    /// Starts so many. `run` runs the executor until it receives, or may not receive any more.
    fn start(
        threads: usize,
        run: impl Fn(async_channel::Receiver<()>) -> Result<(), async_channel::RecvError> + Clone + Send + 'static,
    ) -> Self {
        let (stop, stopped) = async_channel::bounded::<()>(1);
        let thread = |_| {
            let (run, stopped) = (run.clone(), stopped.clone());
            std::thread::spawn(move || assert!(run(stopped).is_err(), "nothing is sent"))
        };
        Self { threads: (0..threads).map(thread).collect(), stop }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop.close();
        for thread in self.threads.drain(..) {
            drop(thread.join());
        }
    }
}

/// async-executor, with threads that run it, and async-channel.
pub(crate) struct AsyncExecutor {
    // Dropped first: the threads end before the executor does.
    _threads: Threads,
    executor: Arc<async_executor::Executor<'static>>,
}

#[derive(Clone)]
pub(crate) struct ChannelPipe(async_channel::Sender<u64>, async_channel::Receiver<u64>);

impl Pipe for ChannelPipe {
    async fn send(&self, item: u64) {
        self.0.send(item).await.expect("it is open");
    }

    async fn recv(&self) -> u64 {
        self.1.recv().await.expect("it is open")
    }
}

impl Rival for AsyncExecutor {
    type Handle = Arc<async_executor::Executor<'static>>;
    type Join = async_executor::Task<u64>;
    type Pipe = ChannelPipe;

    fn start_at(place: Place) -> Self {
        let executor = Arc::new(async_executor::Executor::new());
        let own = executor.clone();
        let threads =
            Threads::start(place.threads(), move |stopped| futures_lite::future::block_on(own.run(stopped.recv())));
        Self { executor, _threads: threads }
    }

    fn run<F>(&self, main: impl FnOnce(Self::Handle) -> F) -> u64
    where
        F: Future<Output = u64> + Send + 'static,
    {
        futures_lite::future::block_on(self.executor.spawn(main(self.executor.clone())))
    }

    fn spawn(handle: &Self::Handle, future: impl Future<Output = u64> + Send + 'static) -> Self::Join {
        handle.spawn(future)
    }

    fn detach(task: Self::Join) {
        task.detach();
    }

    async fn yield_now(_: &Self::Handle) {
        futures_lite::future::yield_now().await;
    }

    fn pipe(_: &Self::Handle, capacity: usize) -> Self::Pipe {
        let (sender, receiver) = async_channel::bounded(capacity);
        ChannelPipe(sender, receiver)
    }
}

/// async-executor's executor that lives as long as the program, with threads that run it.
pub(crate) struct StaticExecutor {
    _threads: Threads,
    executor: &'static async_executor::StaticExecutor,
}

impl Rival for StaticExecutor {
    type Handle = &'static async_executor::StaticExecutor;
    type Join = async_executor::Task<u64>;
    type Pipe = ChannelPipe;

    fn start_at(place: Place) -> Self {
        let executor = async_executor::Executor::new().leak();
        let threads = Threads::start(place.threads(), move |stopped| {
            futures_lite::future::block_on(executor.run(stopped.recv()))
        });
        Self { executor, _threads: threads }
    }

    fn run<F>(&self, main: impl FnOnce(Self::Handle) -> F) -> u64
    where
        F: Future<Output = u64> + Send + 'static,
    {
        futures_lite::future::block_on(self.executor.spawn(main(self.executor)))
    }

    fn spawn(handle: &Self::Handle, future: impl Future<Output = u64> + Send + 'static) -> Self::Join {
        handle.spawn(future)
    }

    fn detach(task: Self::Join) {
        task.detach();
    }

    async fn yield_now(_: &Self::Handle) {
        futures_lite::future::yield_now().await;
    }

    fn pipe(_: &Self::Handle, capacity: usize) -> Self::Pipe {
        let (sender, receiver) = async_channel::bounded(capacity);
        ChannelPipe(sender, receiver)
    }
}
