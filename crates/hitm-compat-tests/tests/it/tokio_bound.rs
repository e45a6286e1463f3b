//! Libraries that need Tokio's reactor, in tasks of this runtime.

use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use hitm::compat::tokio::Compat;
use hitm::{NativeRuntime, Priority};

/// Serves by `axum::serve` in one task and asks by `reqwest` in others.
#[test]
fn axum_and_reqwest() {
    let runtime = NativeRuntime::with_cpus(2).expect("threads");
    let answers = runtime.block_on(async {
        let listener = Compat::new(tokio::net::TcpListener::bind("127.0.0.1:0")).await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let double = |Path(number): Path<u64>| async move {
            // Tokio's timer, in a task of axum's.
            tokio::time::sleep(Duration::from_millis(1)).await;
            (number * 2).to_string()
        };
        let router = Router::new().route("/double/{number}", get(double));
        let server = hitm::spawn_with(Priority::fair(0), Compat::new(async { axum::serve(listener, router).await }));
        let clients: Vec<_> = (0..8)
            .map(|number| {
                let ask = async move {
                    let answer = reqwest::get(format!("http://{address}/double/{number}")).await?;
                    answer.error_for_status()?.text().await
                };
                hitm::spawn(Compat::new(async move {
                    let text = ask.await.expect("an answer");
                    assert!(hitm::Handle::current().task_id().is_some(), "it is a task of this runtime");
                    text
                }))
            })
            .collect();
        let mut answers = Vec::new();
        for client in clients {
            answers.push(client.await.expect("no assertion fails"));
        }
        server.abort();
        assert!(server.await.expect_err("it was aborted").is_aborted());
        answers
    });
    assert_eq!(answers, ["0", "2", "4", "6", "8", "10", "12", "14"]);
}

#[test]
#[should_panic(expected = "there is no reactor running")]
fn without_the_layer_tokio_panics() {
    let runtime = NativeRuntime::with_cpus(1).expect("a thread");
    runtime.block_on(async { tokio::time::sleep(Duration::ZERO).await });
}
