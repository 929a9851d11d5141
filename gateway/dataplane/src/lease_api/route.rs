//! From a path under `/v1/router` to the call it stands for.
//!
//! Names are single path segments, percent-encoded where they contain a slash. A pool is `role/model`: two segments, or
//! one in which the slash is encoded.
//!
//! Names are parts of the path unless an escape in them had to be undone: no call costs an allocation for its path.

use memchr::memchr;
use std::borrow::Cow;

/// The path prefix of the lease API.
const PREFIX: &str = "/v1/router/";
/// In the longest path, after the prefix.
const MAX_SEGMENTS: usize = 6;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PoolName<'a> {
    pub(super) role: Cow<'a, str>,
    pub(super) model: Cow<'a, str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Call<'a> {
    OpenApi,
    Pools,
    Pool { pool: PoolName<'a>, call: PoolCall<'a> },
}

/// A call on one pool, with the names in its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PoolCall<'a> {
    Show,
    AddBackends,
    RemoveBackend(Cow<'a, str>),
    AttachOwner,
    Acknowledge(Cow<'a, str>),
    AttachSender,
    Heartbeat(Cow<'a, str>),
    /// By `DELETE`, on the path of the sender.
    DetachSender(Cow<'a, str>),
    Acquire,
    Settle(Cow<'a, str>),
    Batch,
    CloseSession(Cow<'a, str>),
    Fence,
    Unfence,
    BeginUpdate,
    Drain(Cow<'a, str>),
    Resume(Cow<'a, str>),
    Publish(Cow<'a, str>),
    FailUpdate(Cow<'a, str>),
    CancelUpdate(Cow<'a, str>),
    Fail,
    Close,
}

impl Call<'_> {
    /// The one method of the call.
    pub(super) const fn method(&self) -> &'static str {
        match self {
            Self::OpenApi
            | Self::Pools
            | Self::Pool {
                call: PoolCall::Show, ..
            } => "GET",
            Self::Pool {
                call: PoolCall::RemoveBackend(_) | PoolCall::DetachSender(_),
                ..
            } => "DELETE",
            Self::Pool { .. } => "POST",
        }
    }

    /// The query parameters of the call.
    pub(super) const fn parameters(&self) -> &'static [&'static str] {
        match self {
            Self::Pools
            | Self::Pool {
                call: PoolCall::Show, ..
            } => &["since_gen", "wait_ms", "expect_incarnation"],
            Self::Pool {
                call: PoolCall::RemoveBackend(_),
                ..
            } => &["generation", "drain_ms", "expect_incarnation"],
            Self::Pool {
                call: PoolCall::DetachSender(_),
                ..
            } => &["incarnation", "expect_incarnation"],
            Self::OpenApi | Self::Pool { .. } => &[],
        }
    }
}

/// Whether the lease API serves `path`, given without its leading `/v1/`.
pub(crate) fn is_ours(path: &str) -> bool {
    path.strip_prefix("router")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The call that `path` stands for.
pub(super) fn parse(path: &str) -> Option<Call<'_>> {
    let mut segments: [Cow<'_, str>; MAX_SEGMENTS] = Default::default();
    let mut count = 0;
    let mut rest = Some(path.strip_prefix(PREFIX)?);
    while let Some(text) = rest {
        let (segment, after) = cut(text);
        *segments.get_mut(count)? = decode(segment)?;
        count += 1;
        rest = after;
    }
    match &segments[..count] {
        [only] if only == "openapi.json" => Some(Call::OpenApi),
        [only] if only == "pools" => Some(Call::Pools),
        [first, rest @ ..] if first == "pools" => {
            let (pool, rest) = split_pool(rest)?;
            let call = parse_pool_call(rest)?;
            Some(Call::Pool { pool, call })
        }
        _ => None,
    }
}

/// The part before the first slash, and what follows it. Segments are short: looking at each byte is the fastest.
fn cut(text: &str) -> (&str, Option<&str>) {
    match text.bytes().position(|byte| byte == b'/') {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}

fn split_pool<'a, 's>(segments: &'s [Cow<'a, str>]) -> Option<(PoolName<'a>, &'s [Cow<'a, str>])> {
    match segments {
        // A role has no slash in its name, so one in the first segment is the one between role and model. Only an escape
        // can have brought it there.
        [Cow::Owned(both), rest @ ..] if both.contains('/') => {
            let (role, model) = both.split_once('/')?;
            let (role, model) = (role.to_owned().into(), model.to_owned().into());
            Some((PoolName { role, model }, rest))
        }
        [role, model, rest @ ..] => {
            let (role, model) = (role.clone(), model.clone());
            Some((PoolName { role, model }, rest))
        }
        _ => None,
    }
}

fn parse_pool_call<'a>(segments: &[Cow<'a, str>]) -> Option<PoolCall<'a>> {
    if segments.iter().any(|segment| segment.is_empty()) {
        return None;
    }
    let call = match segments {
        [] => PoolCall::Show,
        [what] => match &**what {
            "leases" => PoolCall::Acquire,
            "leases:batch" => PoolCall::Batch,
            "backends" => PoolCall::AddBackends,
            "owners" => PoolCall::AttachOwner,
            "senders" => PoolCall::AttachSender,
            "fence" => PoolCall::Fence,
            "unfence" => PoolCall::Unfence,
            "updates" => PoolCall::BeginUpdate,
            "fail" => PoolCall::Fail,
            "close" => PoolCall::Close,
            _ => return None,
        },
        [whose, name] => match &**whose {
            "backends" => PoolCall::RemoveBackend(name.clone()),
            "senders" => PoolCall::DetachSender(name.clone()),
            _ => return None,
        },
        [whose, name, what] => match (&**whose, &**what) {
            ("leases", "settle") => PoolCall::Settle(name.clone()),
            ("senders", "heartbeat") => PoolCall::Heartbeat(name.clone()),
            ("sessions", "close") => PoolCall::CloseSession(name.clone()),
            ("owners", "ack") => PoolCall::Acknowledge(name.clone()),
            ("updates", "drain") => PoolCall::Drain(name.clone()),
            ("updates", "resume") => PoolCall::Resume(name.clone()),
            ("updates", "publish") => PoolCall::Publish(name.clone()),
            ("updates", "fail") => PoolCall::FailUpdate(name.clone()),
            ("updates", "cancel") => PoolCall::CancelUpdate(name.clone()),
            _ => return None,
        },
        _ => return None,
    };
    Some(call)
}

/// Undoes percent-encoding; `None` when an escape is malformed or the result is not UTF-8.
pub(super) fn decode(text: &str) -> Option<Cow<'_, str>> {
    if memchr(b'%', text.as_bytes()).is_none() {
        return Some(Cow::Borrowed(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let [high, low, after @ ..] = rest else { return None };
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        bytes.push(digit(*high)? << 4 | digit(*low)?);
        rest = after;
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool_call(path: &str) -> Option<(String, String, PoolCall<'_>)> {
        match parse(path)? {
            Call::Pool { pool, call } => Some((pool.role.into_owned(), pool.model.into_owned(), call)),
            _ => None,
        }
    }

    /// Names with slashes are encoded; the slash of a pool may be.
    #[test]
    fn names_are_decoded() {
        for (path, model, call) in [
            ("r/m", "m", PoolCall::Show),
            ("r%2Fm", "m", PoolCall::Show),
            ("r%2fQwen/fence", "Qwen", PoolCall::Fence),
            ("r/org%2Fname/leases", "org/name", PoolCall::Acquire),
            ("r%2Forg%2Fname/leases", "org/name", PoolCall::Acquire),
            (
                "r/m/senders/rollout%2F3/heartbeat",
                "m",
                PoolCall::Heartbeat("rollout/3".into()),
            ),
            (
                "r/m/sessions/%C3%A4%20b/close",
                "m",
                PoolCall::CloseSession("ä b".into()),
            ),
            (
                "r/m/backends/%5B::1%5D:80",
                "m",
                PoolCall::RemoveBackend("[::1]:80".into()),
            ),
            ("r/m/leases:batch", "m", PoolCall::Batch),
        ] {
            let path = format!("/v1/router/pools/{path}");
            let parsed = pool_call(&path);
            assert_eq!(parsed, Some(("r".to_owned(), model.to_owned(), call)), "{path}");
        }
    }

    /// Anything else under the prefix is nothing.
    #[test]
    fn other_paths() {
        for path in [
            "/v1/router",
            "/v1/router/",
            "/v1/router/pools/",
            "/v1/router/pools/r",
            "/v1/router/pools/r/m/",
            "/v1/router/pools/r/m/leases/",
            "/v1/router/pools/r/m/senders//heartbeat",
            "/v1/router/pools/r/m/leases/1/settle/2",
            "/v1/router/pools/r/m/%zz",
            "/v1/router/pools/r/m%",
            "/v1/router/pools/r/m%ff",
            "/v1/router/pools/r/m/updates/u/begin",
            "/v1/routers/pools",
        ] {
            assert_eq!(parse(path), None, "{path}");
        }
        assert!(is_ours("router") && is_ours("router/x") && !is_ours("routers") && !is_ours("x"));
    }
}
