//! Sockets: data arrives whole, in both directions at once, under load, and while a CPU blocks.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use hitm::io::Async;
use hitm::net::{TcpListener, TcpStream, UdpSocket};
use hitm::{CpuId, CpuSet, Handle, NativeRuntime, Priority, SpawnOptions};

use crate::runtime;

fn local() -> SocketAddr {
    "127.0.0.1:0".parse().expect("an address")
}

/// Serves connections until the runtime ends: echoes what comes.
fn echo(handle: &Handle, priority: Priority) -> SocketAddr {
    let _entered = handle.enter();
    let listener = TcpListener::bind(local()).expect("a free port");
    let address = listener.local_addr().expect("an address");
    hitm::spawn_with(priority, async move {
        while let Ok((stream, _)) = listener.accept().await {
            hitm::spawn(async move {
                let (mut reads, mut writes) = (&stream, &stream);
                futures_lite::io::copy(&mut reads, &mut writes).await?;
                writes.close().await
            });
        }
    });
    address
}

/// Sends `rounds` messages and waits for each; returns the longest time.
async fn ask(address: SocketAddr, rounds: u32) -> io::Result<Duration> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut longest = Duration::ZERO;
    for round in 0..rounds {
        let start = Instant::now();
        let message = round.to_le_bytes();
        stream.write_all(&message).await?;
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).await?;
        assert_eq!(answer, message);
        longest = longest.max(start.elapsed());
    }
    stream.close().await?;
    assert_eq!(stream.read(&mut [0; 1]).await?, 0, "the peer closes too");
    Ok(longest)
}

fn all(
    runtime: &NativeRuntime,
    clients: impl Iterator<Item = impl Future<Output = io::Result<Duration>> + Send + 'static>,
) {
    let tasks: Vec<_> = clients.map(|client| runtime.handle().spawn((), client)).collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.expect("no assertion fails").expect("no socket fails");
        }
    });
}

#[test]
fn every_message_is_answered() {
    for cpus in [1, 2, 4] {
        let runtime = runtime(cpus);
        let address = echo(runtime.handle(), Priority::default());
        all(&runtime, (0..20).map(|_| ask(address, 50)));
    }
}

#[test]
fn a_thread_outside_waits_for_sockets_too() {
    let runtime = runtime(1);
    let address = echo(runtime.handle(), Priority::default());
    runtime.block_on(ask(address, 20)).expect("no socket fails");
}

#[test]
fn both_directions_of_a_socket_at_once() {
    const BYTES: usize = 4 << 20;
    let runtime = runtime(2);
    let address = echo(runtime.handle(), Priority::fair(0));
    runtime.block_on(async {
        let stream = TcpStream::connect(address).await.expect("a connection");
        let (mut reads, mut writes) = (&stream, &stream);
        let write = async {
            writes.write_all(&vec![7; BYTES]).await?;
            writes.close().await
        };
        let read = async {
            let mut bytes = Vec::new();
            reads.read_to_end(&mut bytes).await.map(|count| (count, bytes.iter().all(|&byte| byte == 7)))
        };
        let (written, read) = futures_lite::future::zip(write, read).await;
        written.expect("no socket fails");
        assert_eq!(read.expect("no socket fails"), (BYTES, true));
    });
}

/// While every CPU has tasks that never wait, sockets are looked at where tasks reach checkpoints.
#[test]
fn busy_cpus_look_at_sockets() {
    let runtime = runtime(2);
    let address = echo(runtime.handle(), Priority::fifo(50));
    let hog = || async {
        loop {
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_micros(100) {
                std::hint::spin_loop();
            }
            hitm::checkpoint().await;
        }
    };
    let hogs: Vec<_> = (0..4).map(|_| runtime.handle().spawn(Priority::fifo(1), hog())).collect();
    let client = runtime.handle().spawn(Priority::fifo(50), ask(address, 30));
    let longest = runtime.block_on(client).expect("no assertion fails").expect("no socket fails");
    assert!(hogs.iter().all(|hog| !hog.is_finished()));
    assert!(longest < Duration::from_secs(2), "a message took {longest:?}");
}

/// The CPU that finds an event may block in the task that it wakes. Another CPU then takes over.
#[test]
fn a_cpu_that_blocks_delays_no_socket() {
    const BLOCKS: Duration = Duration::from_millis(600);
    let runtime = runtime(2);
    let address = echo(runtime.handle(), Priority::default());
    // The events go to and fro between the CPUs before one of them blocks.
    all(&runtime, (0..4).map(|_| ask(address, 20)));
    for cpu in [0, 1] {
        let options = SpawnOptions::default().on(CpuSet::from_iter([CpuId(cpu)]));
        let blocks = runtime.handle().spawn(options, async { std::thread::sleep(BLOCKS) });
        let other = SpawnOptions::default().on(CpuSet::from_iter([CpuId(1 - cpu)]));
        let start = Instant::now();
        let client = runtime.handle().spawn(other, ask(address, 5));
        let took = runtime.block_on(async {
            client.await.expect("no assertion fails").expect("no socket fails");
            start.elapsed()
        });
        assert!(took < BLOCKS, "5 messages took {took:?} while CPU {cpu} blocked");
        runtime.block_on(blocks).expect("it ends");
    }
}

/// Voluntary context switches of the threads with these names, from the operating system.
#[cfg(target_os = "linux")]
fn sleeps_of(name: &str) -> u64 {
    let threads = std::fs::read_dir("/proc/self/task").expect("threads");
    let own = threads.map(|thread| thread.expect("a thread").path()).filter(|thread| {
        // A thread of another test may end meanwhile.
        std::fs::read_to_string(thread.join("comm")).is_ok_and(|comm| comm.starts_with(name))
    });
    let sleeps = |thread: std::path::PathBuf| {
        let status = std::fs::read_to_string(thread.join("status")).expect("it lives");
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|count| count.trim().parse::<u64>().ok()).expect("a count")
    };
    own.map(sleeps).sum()
}

/// No thread wakes while nothing happens: neither the one that waits in the poller nor a guard.
#[cfg(target_os = "linux")]
#[test]
fn an_idle_runtime_sleeps() {
    let builder = NativeRuntime::builder().cpus(3).thread_name(|cpu| format!("idle-io-{cpu}"));
    let runtime = builder.build().expect("threads");
    let address = echo(runtime.handle(), Priority::default());
    all(&runtime, (0..4).map(|_| ask(address, 20)));
    // The last guard has gone.
    std::thread::sleep(Duration::from_millis(100));
    let before = sleeps_of("idle-io-");
    assert!(before > 0);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(sleeps_of("idle-io-") - before, 0, "threads that woke in half a second of silence");
}

#[test]
fn datagrams_and_their_senders() {
    runtime(1).block_on(async {
        let (one, two) = (UdpSocket::bind(local()).expect("a port"), UdpSocket::bind(local()).expect("a port"));
        let (from, to) = (one.local_addr().expect("an address"), two.local_addr().expect("an address"));
        let receive = async {
            let mut bytes = [0; 16];
            two.recv_from(&mut bytes).await.map(|(count, sender)| (bytes[..count].to_vec(), sender))
        };
        let (received, sent) = futures_lite::future::zip(receive, one.send_to(b"datagram", to)).await;
        assert_eq!(sent.expect("no socket fails"), 8);
        assert_eq!(received.expect("no socket fails"), (b"datagram".to_vec(), from));
    });
}

#[test]
fn a_dropped_wait_is_forgotten() {
    let runtime = runtime(1);
    runtime.block_on(async {
        let (own, mut peer) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let own = Async::new(own).expect("it can be watched");
        for _ in 0..3 {
            let wait = hitm::timeout(Duration::from_millis(2), own.readable()).await;
            assert!(wait.is_err(), "nothing was sent");
        }
        io::Write::write_all(&mut peer, b"!").expect("room");
        own.readable().await.expect("it can be watched");
        let mut byte = [0];
        assert_eq!(own.read_with(|mut own| io::Read::read(&mut own, &mut byte)).await.expect("a byte"), 1);
    });
}

#[test]
fn errors_are_values() {
    let outside = TcpListener::bind(local()).expect_err("no runtime");
    assert!(outside.to_string().starts_with("this thread belongs to no runtime"), "{outside}");
    let runtime = runtime(1);
    let refused = runtime.block_on(async {
        let listener = TcpListener::bind(local()).expect("a free port");
        let address = listener.local_addr().expect("an address");
        drop(listener);
        TcpStream::connect(address).await.expect_err("no listener")
    });
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    let file = std::fs::File::open("Cargo.toml").expect("a manifest");
    let _entered = runtime.handle().enter();
    assert!(Async::new(file).is_err(), "a regular file cannot be watched");
}
