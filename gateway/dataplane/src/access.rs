//! Who may call what: the keys of this gateway, checked in one place.
//!
//! Three keys, three relations. The *client key* is for whoever generates or looks round, the *admin key* for whoever
//! changes what is served (it opens what the client key opens, too), and the engines' own key is ours to show to them.
//! What is public, is public so that load balancers and scrapers need no key: `/live`, `/ready`, health, the index, the
//! API description and, unless configured otherwise, `/metrics`.
//!
//! The control app decides nothing of this: requests reach it over a private socket with `x-trimtab-access`, which says
//! what the check of the admin key said, and without the keys.

mod basic;

use http::header::{AUTHORIZATION, HOST, ORIGIN};
use http::{HeaderMap, HeaderName, HeaderValue};
use std::borrow::Cow;
use std::hint::black_box;
use std::net::{IpAddr, SocketAddr};

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The keys of one gateway, and what they open.
pub(crate) struct Access {
    client: Option<Key>,
    admin: Admin,
    metrics_need_key: bool,
}

/// What a caller of an admin endpoint has to show.
enum Admin {
    Required(Key),
    /// No key is configured, and only this machine can connect.
    LoopbackOnly,
    /// No key is configured, and others can connect: nobody is served.
    Closed,
}

/// Where a request came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Listener,
    /// The socket of the lease API: its mode says who may connect, as for a listener on loopback. No browser can.
    LeaseSocket,
}

/// Why a caller is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    NoClientKey,
    WrongClientKey,
    NoAdminKey,
    /// There is an `Authorization`, but no bearer token in it.
    NotBearer,
    WrongAdminKey,
    Closed,
    ForeignOrigin,
}

impl Denied {
    /// The caller showed nothing (401), as opposed to something that does not open this door (403).
    pub(crate) const fn is_unauthenticated(self) -> bool {
        matches!(self, Self::NoClientKey | Self::NoAdminKey | Self::NotBearer)
    }

    pub(crate) const fn message(self) -> &'static str {
        match self {
            Self::NoClientKey => "the client key is missing: send Authorization: Bearer <client key>",
            Self::WrongClientKey => "this is not the client key of this gateway",
            Self::NoAdminKey => "the admin key is missing: send Authorization: Bearer <admin key>",
            Self::NotBearer => "the Authorization header is not of the form: Bearer <admin key>",
            Self::WrongAdminKey => "this is not the admin key",
            Self::Closed => {
                "this endpoint is closed: no admin_key is configured, and the gateway listens beyond loopback"
            }
            Self::ForeignOrigin => {
                "a page of another site may not call this endpoint (Origin); configure an admin_key to allow its own tools"
            }
        }
    }

    /// What the control app is told.
    const fn verdict(self) -> &'static str {
        match self {
            Self::WrongAdminKey => "wrong-key",
            Self::Closed => "closed",
            Self::ForeignOrigin => "foreign-origin",
            Self::NoClientKey | Self::WrongClientKey | Self::NoAdminKey | Self::NotBearer => "no-key",
        }
    }
}

impl Access {
    /// `local`: where the listener is bound.
    pub(crate) fn new(
        client: Option<&str>,
        admin: Option<&str>,
        metrics_need_key: bool,
        local: SocketAddr,
    ) -> Result<Self, String> {
        let key = |name, text: Option<&str>| text.map(|text| Key::new(name, text)).transpose();
        Ok(Self {
            client: key("client_key", client)?,
            admin: match key("admin_key", admin)? {
                Some(key) => Admin::Required(key),
                None if local.ip().to_canonical().is_loopback() => Admin::LoopbackOnly,
                None => Admin::Closed,
            },
            metrics_need_key,
        })
    }

    /// Whether the caller may generate and look round.
    #[inline]
    pub(crate) fn check_client(&self, headers: &HeaderMap) -> Result<(), Denied> {
        match &self.client {
            None => Ok(()),
            Some(client) => self.check_client_key(client, headers),
        }
    }

    fn check_client_key(&self, client: &Key, headers: &HeaderMap) -> Result<(), Denied> {
        let mut shown = credentials(headers).peekable();
        if shown.peek().is_none() {
            return Err(Denied::NoClientKey);
        }
        if shown.any(|(_, text)| client.is(&text) || self.is_admin_key(&text)) {
            Ok(())
        } else {
            Err(Denied::WrongClientKey)
        }
    }

    /// Whether the caller may change what is served.
    pub(crate) fn check_admin(&self, headers: &HeaderMap, origin: Origin) -> Result<(), Denied> {
        let key = match &self.admin {
            Admin::LoopbackOnly | Admin::Closed if origin == Origin::LeaseSocket => return Ok(()),
            // A browser on this machine runs code of any site, and a name of that site may resolve to this machine.
            Admin::LoopbackOnly if is_foreign(headers) => return Err(Denied::ForeignOrigin),
            Admin::LoopbackOnly => return Ok(()),
            Admin::Closed => return Err(Denied::Closed),
            Admin::Required(key) => key,
        };
        let value = headers.get(AUTHORIZATION).ok_or(Denied::NoAdminKey)?;
        let shown = token(value.as_bytes()).ok_or(Denied::NotBearer)?;
        if key.is(&shown) {
            Ok(())
        } else {
            Err(Denied::WrongAdminKey)
        }
    }

    /// Whether the caller may ask the control app for `path`. Which of its paths are for admins is the app's knowledge.
    pub(crate) fn check_control(&self, path: &str, headers: &HeaderMap) -> Result<(), Denied> {
        let is_public = match path.rsplit_once('/') {
            // The dashboard is a page without facts; what it shows it asks `/status` for, as its reader.
            Some((_, "health") | ("", "" | "openapi.json" | "liveness" | "readiness" | "ui") | ("/ui", _)) => true,
            Some(("", "metrics")) => !self.metrics_need_key,
            _ => false,
        };
        if is_public { Ok(()) } else { self.check_client(headers) }
    }

    /// The value of `x-trimtab-access` for the control app.
    pub(crate) fn verdict(&self, headers: &HeaderMap) -> HeaderValue {
        let verdict = self
            .check_admin(headers, Origin::Listener)
            .map_or_else(Denied::verdict, |()| "admin");
        HeaderValue::from_static(verdict)
    }

    /// Removes our keys: they are not for engines. Credentials that are not ours stay.
    #[inline]
    pub(crate) fn strip(&self, headers: &mut HeaderMap) {
        if self.client.is_none() && !matches!(self.admin, Admin::Required(_)) {
            return;
        }
        for name in [AUTHORIZATION, API_KEY] {
            let is_ours = |text: &[u8]| self.client.as_ref().is_some_and(|key| key.is(text)) || self.is_admin_key(text);
            if credentials(headers).any(|(shown, text)| shown == name && is_ours(&text)) {
                headers.remove(name);
            }
        }
    }

    fn is_admin_key(&self, text: &[u8]) -> bool {
        matches!(&self.admin, Admin::Required(key) if key.is(text))
    }
}

/// Everything in `headers` that may be a key.
fn credentials(headers: &HeaderMap) -> impl Iterator<Item = (HeaderName, Cow<'_, [u8]>)> {
    // Some clients write into `x-api-key` what belongs into `Authorization`.
    [AUTHORIZATION, API_KEY].into_iter().flat_map(|name| {
        let values = headers.get_all(&name).into_iter();
        values.map(move |value| {
            let text = value.as_bytes();
            (name.clone(), token(text).unwrap_or(Cow::Borrowed(text)))
        })
    })
}

/// Removes whatever may be a key.
pub(crate) fn strip_all(headers: &mut HeaderMap) {
    headers.remove(AUTHORIZATION);
    headers.remove(API_KEY);
}

/// The key that `Authorization` shows: a bearer token, or the password of a user of any name.
///
/// A client that has no place for a key has one for a host, and every HTTP library turns `name:key@host` into the latter.
fn token(value: &[u8]) -> Option<Cow<'_, [u8]>> {
    bearer(value)
        .map(Cow::Borrowed)
        .or_else(|| basic::password(value).map(Cow::Owned))
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked("bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// A page sent this, and it is not one that this gateway served under a name of this machine.
fn is_foreign(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(ORIGIN) else {
        return false;
    };
    let text = |value: &HeaderValue| value.to_str().unwrap_or_default().to_owned();
    let (origin, host) = (text(origin), headers.get(HOST).map(text).unwrap_or_default());
    let authority = origin.split_once("://").map_or("", |(_, authority)| authority);
    // The second condition is what a name that was made to resolve to this machine fails.
    !authority.eq_ignore_ascii_case(&host) || !is_this_machine(authority)
}

fn is_this_machine(authority: &str) -> bool {
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|ip| ip.to_canonical().is_loopback())
}

struct Key(String);

impl Key {
    fn new(name: &str, text: &str) -> Result<Self, String> {
        // Bytes that no header can carry would lock everybody out.
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!(
                "{name} is refused: it must be one or more visible ASCII characters"
            ));
        }
        Ok(Self(text.to_owned()))
    }

    /// Compares in a time that depends on the length of `shown` alone, not on where the two differ.
    fn is(&self, shown: &[u8]) -> bool {
        let key = self.0.as_bytes();
        let mut difference = shown.len() ^ key.len();
        for (index, byte) in shown.iter().enumerate() {
            let other = key[index % key.len()];
            difference |= usize::from(black_box(byte ^ other));
        }
        black_box(difference) == 0
    }
}

#[cfg(test)]
mod tests;
