//! A program that needs Tokio's reactor: edges of `epoll`, an `eventfd`, sockets.

use std::fs;

use super::{built, package, require_same_bytes};

/// A server and its clients on one runtime, over both families of sockets.
const SERVICE: &str = r#"
use std::io::ErrorKind::WouldBlock;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// Sends eight bytes.
async fn send(stream: &TcpStream, word: u64) {
    loop {
        stream.writable().await.unwrap();
        match stream.try_write(&word.to_le_bytes()) {
            Ok(bytes) => return assert_eq!(bytes, 8),
            Err(error) => assert_eq!(error.kind(), WouldBlock),
        }
    }
}

/// Receives eight bytes; none at the end.
async fn receive(stream: &TcpStream) -> Option<u64> {
    let mut word = [0; 8];
    loop {
        stream.readable().await.unwrap();
        match stream.try_read(&mut word) {
            Ok(0) => return None,
            Ok(bytes) => { assert_eq!(bytes, 8); return Some(u64::from_le_bytes(word)) }
            Err(error) => assert_eq!(error.kind(), WouldBlock),
        }
    }
}

async fn serve(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            while let Some(word) = receive(&stream).await {
                send(&stream, word + 1).await;
            }
        });
    }
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(run());
}

async fn run() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(serve(listener));
    let clients: Vec<_> = (0..6).map(|_| tokio::spawn(async move {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let mut word = 0;
        while word < 40 {
            send(&stream, word).await;
            word = receive(&stream).await.unwrap();
        }
        word
    })).collect();
    let mut sum = 0;
    for client in clients {
        sum += client.await.unwrap();
    }
    server.abort();
    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    let path = format!("sockets.{}", std::process::id());
    let local = UnixListener::bind(&path).unwrap();
    let peer = UnixStream::connect(&path).await.unwrap();
    let (other, _) = local.accept().await.unwrap();
    let _ = std::fs::remove_file(&path);
    drop(peer);
    other.readable().await.unwrap();
    println!("{sum} {}", other.try_read(&mut [0; 8]).unwrap());
}
"#;

#[test]
fn a_service_of_tokio_runs_as_it_is() {
    let Some(folder) = package("app", SERVICE) else { return };
    let manifest = folder.path().join("Cargo.toml");
    let features = r#"["net", "rt-multi-thread", "time"]"#;
    let needs = format!("[dependencies]\ntokio = {{ version = \"1\", features = {features} }}\n");
    let text = fs::read_to_string(&manifest).expect("a manifest") + &needs;
    fs::write(&manifest, text).expect("there is room");
    // The versions of the workspace.
    fs::copy(crate::command::workspace("Cargo.lock"), folder.path().join("Cargo.lock")).expect("there is room");
    let program = built(folder);
    assert_eq!(program.natively(&[]), "240 0\n");
    let report = require_same_bytes(&program, &["--cpus", "24"], &[]);
    assert!(report.starts_with("240 0\n"), "{report}");
    let (_, file) = program.simulated(&["--cpus", "24"], &[]);
    let lines = file["runs"][0]["lines"].as_array().expect("lines");
    assert!(lines.iter().any(|line| line["object"] == "epoll"), "{lines:#?}");
}
