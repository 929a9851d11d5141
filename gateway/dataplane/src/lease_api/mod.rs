//! The lease API under `/v1/router`: the router as a sidecar of callers that talk to the engines themselves.
//!
//! A caller asks where to run and with which weights, and says how it ended; a controller fences owners and drives
//! weight updates. Every message can be lost, repeated or late, so every mutating call carries a key of the caller's
//! choice, and the same call again gets the same answer. What a call *does* is decided in `router_core`; this module
//! turns HTTP into its operations, keeps the futures of those who wait, and turns its errors into answers that say
//! whether sending the same again can help.
//!
//! Nothing of this is on the path of a proxied request.

mod backends;
mod batch;
mod error;
mod fence;
mod input;
mod leases;
mod managed;
mod memory;
mod openapi;
mod owners;
mod pools;
mod query;
mod reply;
mod request;
mod route;
mod senders;
mod sessions;
mod updates;
mod view;
mod wait;

use crate::access::Origin;
use crate::exchange::before;
use crate::plane::{Plane, Role};
use crate::server::Phase;
use crate::shared::SharedPool;
use crate::upstream::Upstreams;
use error::{Problem, Refusal};
use http::{HeaderValue, Request, Response};
use hyper::body::Incoming;
use memory::Memory;
pub(crate) use openapi::DOCUMENT as OPENAPI;
use parking_lot::Mutex;
use reply::{Answer, Stamp};
pub(crate) use route::is_ours;
use route::{Call, PoolCall};
use router_core::address::rules::AddressRules;
use router_core::error::Error;
use router_core::pool::Pool;
use router_core::time::Timestamp;
use std::hash::{BuildHasher, RandomState};
use std::pin::pin;
use std::sync::Arc;
use tokio::sync::watch;

/// What the lease API of one data plane knows beside its pools.
pub(crate) struct LeaseApi {
    /// Names this start of the router: whoever holds leases of another one must attach again.
    incarnation: String,
    address_rules: AddressRules,
    /// What the engines ask of us.
    engine_key: Option<HeaderValue>,
    pools: Vec<ApiPool>,
    phase: watch::Receiver<Phase>,
}

/// One pool under one of its names.
struct ApiPool {
    role: String,
    model: String,
    shared: Arc<SharedPool>,
    upstreams: Arc<Upstreams>,
    memory: Arc<Mutex<Memory>>,
}

/// An answer of the core, and how the pool stood at that instant.
struct Stamped<T> {
    value: T,
    stamp: Stamp,
}

/// What every call works with.
#[derive(Clone, Copy)]
struct Context<'a> {
    api: &'a LeaseApi,
    pool: &'a ApiPool,
}

impl LeaseApi {
    pub(crate) fn new(
        address_rules: AddressRules,
        roles: &[Role],
        phase: watch::Receiver<Phase>,
        engine_key: Option<HeaderValue>,
    ) -> Self {
        let mut pools: Vec<ApiPool> = Vec::new();
        for role in roles {
            for model in &role.models {
                let shared = Arc::clone(model.upstreams.shared());
                let twin = pools.iter().find(|known| Arc::ptr_eq(&known.shared, &shared));
                let memory = twin.map_or_else(Arc::default, |known| Arc::clone(&known.memory));
                pools.push(ApiPool {
                    role: role.name.clone(),
                    model: model.name.clone(),
                    shared,
                    upstreams: Arc::clone(&model.upstreams),
                    memory,
                });
            }
        }
        Self {
            incarnation: new_incarnation(),
            address_rules,
            engine_key,
            pools,
            phase,
        }
    }
}

/// The standard library seeds each `RandomState` from the system's random numbers.
fn new_incarnation() -> String {
    let random = RandomState::new();
    format!("{:016x}{:016x}", random.hash_one("high"), random.hash_one("low"))
}

impl Context<'_> {
    /// Runs one operation of the core in one critical section.
    fn run<T>(&self, operation: impl FnOnce(&mut Pool, Timestamp) -> Result<T, Error>) -> Result<Stamped<T>, Error> {
        self.pool.shared.with(|pool, now| {
            let value = operation(pool, now)?;
            Ok(Stamped {
                value,
                stamp: Stamp::of(pool),
            })
        })
    }

    fn stamp(&self) -> Stamp {
        self.pool.shared.with(|pool, _| Stamp::of(pool))
    }
}

/// Answers a request to a path under `/v1/router`. Dropping the future means that the client has left.
pub(crate) async fn answer(plane: &Plane, request: Request<Incoming>, origin: Origin) -> (Response<Answer>, bool) {
    let api = &plane.lease_api;
    let mut pool = None;
    match serve(plane, request, origin, &mut pool).await {
        Ok(response) => (response, false),
        Err(refusal) => {
            let stamp = pool.map(|pool| Context { api, pool }.stamp());
            let closes = refusal.closes();
            (refusal.into_response(&api.incarnation, stamp), closes)
        }
    }
}

async fn serve<'a>(
    plane: &'a Plane,
    request: Request<Incoming>,
    origin: Origin,
    found: &mut Option<&'a ApiPool>,
) -> Result<Response<Answer>, Refusal> {
    let api = &plane.lease_api;
    plane
        .access
        .check_admin(request.headers(), origin)
        .map_err(Refusal::denied)?;
    let (mut parts, body) = request.into_parts();
    let path = parts.uri.path();
    let call = route::parse(path).ok_or_else(|| {
        Refusal::new(
            Problem::NotFound,
            format!("the lease API has no {path}; see /v1/router/openapi.json"),
        )
    })?;
    if parts.method != call.method() {
        return Err(Refusal::method_not_allowed(path, call.method()));
    }
    let query = query::Query::parse(parts.uri.query().unwrap_or_default(), call.parameters())?;
    let (name, call) = match call {
        Call::OpenApi => return Ok(openapi::document()),
        Call::Pools => return pools::list(api, &query).await,
        Call::Pool { pool, call } => (pool, call),
    };
    let pool = api
        .pools
        .iter()
        .find(|known| known.role == name.role && known.model == name.model);
    let pool = pool.ok_or_else(|| {
        let known: Vec<String> = api
            .pools
            .iter()
            .map(|pool| format!("{}/{}", pool.role, pool.model))
            .collect();
        let message = format!("no pool {}/{} here; pools: {}", name.role, name.model, known.join(", "));
        Refusal::new(Problem::UnknownPool, message)
    })?;
    *found = Some(pool);
    managed::check(pool, &call)?;
    let context = Context { api, pool };
    let timeouts = &plane.config.timeouts;
    let read = pin!(input::Input::read(api, body));
    let input = before(timeouts.deadline(), read).await;
    let input = input.unwrap_or_else(|_| Err(Refusal::body_too_late(timeouts)))?;
    let answer = match call {
        PoolCall::Acquire => leases::acquire(context, &input.parse()?).await?,
        PoolCall::Settle(lease) => leases::settle(context, &lease, &input.parse()?)?,
        PoolCall::Batch => batch::run(context, &input.parse()?).await?,
        // Boxed, so that the calls of every execution do not pay for the rare ones.
        call => return Box::pin(dispatch(context, call, input, &query)).await,
    };
    Ok(reply::reusing(std::mem::take(&mut parts.headers), answer))
}

/// The calls that are not made for every execution.
async fn dispatch(
    context: Context<'_>,
    call: PoolCall<'_>,
    input: input::Input<'_>,
    query: &query::Query,
) -> Result<Response<Answer>, Refusal> {
    match call {
        PoolCall::Show => pools::show(context, query).await,
        PoolCall::AddBackends => backends::add(context, input.parse()?),
        PoolCall::RemoveBackend(id) => backends::remove(context, &id, query).await,
        PoolCall::AttachOwner => owners::attach(context, &input.parse()?),
        PoolCall::Acknowledge(owner) => owners::acknowledge(context, &owner, &input.parse()?),
        PoolCall::AttachSender => senders::attach(context, &input.parse()?),
        PoolCall::Heartbeat(sender) => senders::heartbeat(context, &sender, &input.parse()?),
        PoolCall::DetachSender(sender) => senders::detach(context, &sender, query),
        PoolCall::Acquire | PoolCall::Settle(_) | PoolCall::Batch => unreachable!("served before"),
        PoolCall::CloseSession(key) => sessions::close(context, &key, &input.parse()?),
        PoolCall::Fence => fence::fence(context, &input.parse()?),
        PoolCall::Unfence => fence::unfence(context, &input.parse()?),
        PoolCall::BeginUpdate => updates::begin(context, &input.parse()?),
        PoolCall::Drain(id) => updates::drain(context, &id, &input.parse()?).await,
        PoolCall::Resume(id) => updates::resume(context, &id, &input.parse()?),
        PoolCall::Publish(id) => updates::publish(context, &id, &input.parse()?),
        PoolCall::FailUpdate(id) => updates::fail(context, &id, &input.parse()?),
        PoolCall::CancelUpdate(id) => updates::cancel(context, &id, &input.parse()?),
        PoolCall::Fail => pools::fail(context, &input.parse()?),
        PoolCall::Close => pools::close(context, &input.parse()?),
    }
}
