//! Clients that leave, at every point of a request (B1, B8).

mod support;

use router_core::lease::Outcome;
use std::time::{Duration, Instant};
use support::client::{Client, post, post_with};
use support::engine::{Engine, Step, answer, chunk, stream_head};
use support::{World, eventually};

/// A client that leaves while the engine prefills closes the engine's connection within a second, streaming or not,
/// by an orderly end or a reset; the generation is aborted by its id and the lease ends as cancelled (B8).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b8_leaving_during_a_long_prefill() {
    let engine = Engine::start(|_, _| vec![Step::Hold]).await;
    let world = World::start(&[&engine]).await;
    for (count, (body, reset)) in [
        ("{}", false),
        ("{\"stream\":true}", false),
        ("{}", true),
        ("{\"stream\":true}", true),
    ]
    .into_iter()
    .enumerate()
    {
        let mut client = Client::connect(&world.plane).await;
        client.send(post("/generate", body)).await;
        eventually("the engine has the request", || engine.seen().len() == count + 1).await;
        assert_eq!(world.outstanding(), 1);
        let left = Instant::now();
        if reset {
            client.reset();
        } else {
            drop(client);
        }
        eventually("the engine saw the end", || engine.closed() == count + 1).await;
        assert!(left.elapsed() < Duration::from_secs(1), "after {:?}", left.elapsed());
        eventually("the lease is settled", || {
            world.outcome(Outcome::Cancelled) == count as u64 + 1
        })
        .await;
        let id = engine.seen()[count].json()["rid"].as_str().expect("an id").to_owned();
        assert_eq!(engine.aborts()[count], format!("{{\"rid\":\"{id}\"}}"));
    }
    assert_eq!(world.plane.statistics().client_gone_total, 4);
    world.finish().await;
}

/// A client that leaves between two events, or after the last one but before the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b1_leaving_between_events() {
    let engine = Engine::start(|_, _| {
        vec![
            Step::Send(stream_head()),
            Step::Send(chunk("data: 1\n\n")),
            Step::Send(chunk("data: [DONE]\n\n")),
            Step::Hold,
        ]
    })
    .await;
    let world = World::start(&[&engine]).await;
    for count in 1..=4 {
        let mut client = Client::connect(&world.plane).await;
        client.send(post("/generate", "{\"rid\":\"job-7\"}")).await;
        client.read_until("[DONE]").await;
        drop(client);
        eventually("the engine saw the end", || engine.closed() == count).await;
        eventually("the lease is settled", || {
            world.outcome(Outcome::Cancelled) == count as u64
        })
        .await;
    }
    assert!(engine.aborts().iter().all(|abort| abort == "{\"rid\":\"job-7\"}"));
    world.finish().await;
}

/// Engines abort by prefix: a client that leaves never ends a request of somebody else whose id begins with its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b8_leaving_does_not_end_requests_of_others() {
    let engine = Engine::start(|_, _| vec![Step::Hold]).await;
    let world = World::start(&[&engine]).await;
    let mut clients = Vec::new();
    for (count, id) in ["job-1", "job-10", "job-2"].into_iter().enumerate() {
        let mut client = Client::connect(&world.plane).await;
        client.send(post("/generate", &format!("{{\"rid\":\"{id}\"}}"))).await;
        eventually("the engine has the request", || engine.seen().len() == count + 1).await;
        clients.push(client);
    }
    drop(clients.remove(0));
    eventually("its connection is closed", || engine.closed() == 1).await;
    eventually("its lease is settled", || world.outcome(Outcome::Cancelled) == 1).await;
    assert!(engine.aborts().is_empty(), "{:?}", engine.aborts());
    drop(clients);
    eventually("the others are settled", || world.outcome(Outcome::Cancelled) == 3).await;
    let mut aborts = engine.aborts();
    aborts.sort_unstable();
    assert_eq!(aborts, ["{\"rid\":\"job-10\"}", "{\"rid\":\"job-2\"}"]);
    world.finish().await;
}

/// A client that already sent bytes of a next request is seen leaving too: hyper alone would not look.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b8_leaving_with_pipelined_bytes() {
    let engine = Engine::start(|_, _| vec![Step::Hold]).await;
    let world = World::start(&[&engine]).await;
    for (count, tail) in ["\r\n", "POST /generate HT", &post("/generate", "{}")]
        .into_iter()
        .enumerate()
    {
        for (half, together) in [true, false].into_iter().enumerate() {
            let number = 2 * count + half + 1;
            let mut client = Client::connect(&world.plane).await;
            if together {
                client.send(post("/generate", "{}") + tail).await;
                eventually("the engine has the request", || engine.seen().len() == number).await;
            } else {
                client.send(post("/generate", "{}")).await;
                eventually("the engine has the request", || engine.seen().len() == number).await;
                client.send(tail).await;
            }
            drop(client);
            eventually("the engine saw the end", || engine.closed() == number).await;
        }
    }
    eventually("settled", || world.outcome(Outcome::Cancelled) == 6).await;
    world.finish().await;
}

/// A client that leaves before its request is complete never reaches an engine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b1_leaving_inside_the_request() {
    let engine = Engine::start(|_, _| vec![Step::Hold]).await;
    let world = World::start(&[&engine]).await;
    let request = post("/generate", "{\"text\":\"hello\"}");
    for end in (1..request.len()).step_by(7) {
        let mut client = Client::connect(&world.plane).await;
        client.send(&request[..end]).await;
        if end % 2 == 0 {
            client.reset();
        }
    }
    eventually("every connection is closed", || {
        world.plane.statistics().connections == 0
    })
    .await;
    assert!(engine.seen().is_empty());
    assert_eq!(world.plane.statistics().client_gone_total, 0);
    world.finish().await;
}

/// Ids that could abort other people's generations are not used: the connection is closed, nothing else is sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dangerous_ids_are_not_aborted_by_prefix() {
    let engine = Engine::start(|_, _| vec![Step::Hold]).await;
    let world = World::start(&[&engine]).await;
    for (count, id) in ["\"\"", "\"a1\"", "7"].into_iter().enumerate() {
        let mut client = Client::connect(&world.plane).await;
        client.send(post("/generate", &format!("{{\"rid\":{id}}}"))).await;
        eventually("the engine has the request", || engine.seen().len() == count + 1).await;
        drop(client);
        eventually("the lease is settled", || {
            world.outcome(Outcome::Cancelled) == count as u64 + 1
        })
        .await;
        eventually("the engine saw the end", || engine.closed() == count + 1).await;
    }
    assert!(engine.aborts().is_empty());
    world.finish().await;
}

/// An engine that does not confirm the abort in time leaves the lease ambiguous, after the grace.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unconfirmed_abort_is_ambiguous() {
    let engine = Engine::start(|_, _| vec![Step::Hold]).await;
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let url = format!("http://{}", silent.local_addr().expect("bound"));
    drop(engine);
    // A listener that never accepts: connections open, requests are written, nothing is answered.
    let grace = Duration::from_millis(300);
    let world = World::over(&[url], |config| {
        config.timeouts.abort_grace = grace;
        config.timeouts.probe_timeout = Duration::from_millis(50);
    })
    .await;
    let mut client = Client::connect(&world.plane).await;
    client.send(post("/generate", "{}")).await;
    eventually("sent", || {
        world.outstanding() == 1 && world.plane.statistics().upstream_connections_total == 2
    })
    .await;
    // The connection is open; one more turn of the task writes the request.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let left = Instant::now();
    drop(client);
    eventually("gone", || world.plane.statistics().client_gone_total == 1).await;
    assert_eq!(world.outstanding(), 1, "the execution stays counted while it may run");
    eventually("settled", || world.outcome(Outcome::Ambiguous) == 1).await;
    assert!(left.elapsed() >= grace);
    world.finish().await;
}

/// 500 requests cancelled at random points: nothing stays counted, and the engines saw every end (B1).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b1_five_hundred_cancelled_requests() {
    let script = |_: &support::engine::Seen, number: usize| match number % 4 {
        0 => vec![Step::Hold],
        1 => vec![Step::Send(stream_head()), Step::Hold],
        2 => vec![Step::Send(stream_head()), Step::Send(chunk("data: 1\n\n")), Step::Hold],
        _ => vec![Step::Send(answer("200 OK", "{\"text\":\"done\"}"))],
    };
    let (one, two) = (Engine::start(script).await, Engine::start(script).await);
    let world = World::start(&[&one, &two]).await;
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        usize::try_from(random >> 33).expect("31 bits")
    };
    for batch in 0..25 {
        let mut clients = Vec::new();
        for index in 0..20 {
            let session = format!("x-session-id: s{}\r\n", next() % 64);
            let request = post_with(
                "/generate",
                &session,
                &format!("{{\"text\":\"{}\"}}", "x".repeat(next() % 9000)),
            );
            let mut client = Client::connect(&world.plane).await;
            let end = if next() % 4 == 0 {
                next() % request.len()
            } else {
                request.len()
            };
            client.send(&request[..end]).await;
            clients.push((client, batch * 20 + index));
        }
        for (client, number) in clients {
            match next() % 3 {
                0 => tokio::task::yield_now().await,
                1 => tokio::time::sleep(Duration::from_micros(next() as u64 % 3000)).await,
                _ => {}
            }
            if number % 2 == 0 {
                client.reset();
            }
        }
    }
    eventually("no lease is open", || world.outstanding() == 0).await;
    let settled = world.pool.with(|pool, _| pool.statistics().outcomes.total());
    let picked = world.pool.with(|pool, _| pool.statistics().picks.total());
    assert_eq!(settled, picked);
    assert_eq!(world.outcome(Outcome::Ambiguous), 0);
    let idle = |engine: &Engine| engine.connections() - engine.closed();
    eventually("only pooled connections are open", || {
        (idle(&one) + idle(&two)) as u64 == world.plane.statistics().upstream_idle
    })
    .await;
    world.finish().await;
}
