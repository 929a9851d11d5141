//! The one function that normalises an engine address, wherever it comes from.
//!
//! Addresses arrive from configuration files, flags, environment variables and APIs, written in many ways. Two texts
//! that mean the same engine must become the same backend, and a text that means something else than an engine's root
//! (a path, a user, a query) must be refused where it is written, not where a request fails.
//!
//! The rules: an optional `http://` or `https://`; a host name (lower-cased), an IPv4 address, or an IPv6 address (bare or
//! bracketed; written canonically and bracketed; a zone id is kept); a port from 1 to 65535, always required; at most
//! one `/` after it. In a bare IPv6 address the last group is therefore the port.
//!
//! ```
//! use router_core::address::Address;
//!
//! let address = Address::parse("HTTP://Node-7.Cluster:30000/")?;
//! assert_eq!(address.authority(), "node-7.cluster:30000");
//! assert_eq!(Address::parse("[0:0::1]:30000")?.url(), "http://[::1]:30000");
//! # Ok::<(), router_core::error::Error>(())
//! ```

pub mod rules;

use crate::error::Error;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The longest host name of the domain name system.
const MAX_HOST_BYTES: usize = 253;

/// An engine's address in its one normal form.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Address {
    authority: String,
    port: u16,
    tls: bool,
}

impl Address {
    /// Normalises `text`.
    ///
    /// Fails with [`Error::InvalidAddress`], which names the text and the rule it breaks. User information is masked
    /// there: an error may end in a log, and a password must not.
    pub fn parse(text: &str) -> Result<Self, Error> {
        normalise(text).map_err(|rule| Error::InvalidAddress {
            value: without_user_information(text),
            rule,
        })
    }

    /// `host:port`, an IPv6 host in brackets: the value of a `Host` header.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// `http://host:port` or `https://host:port`, without a trailing slash.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}", self.authority)
    }

    /// Whether the engine is reached through TLS: its URL begins with `https://`.
    #[must_use]
    pub const fn is_tls(&self) -> bool {
        self.tls
    }

    /// The host alone, an IPv6 host without brackets: what a resolver or a socket takes.
    #[must_use]
    pub fn host(&self) -> &str {
        let (host, _port) = self.authority.rsplit_once(':').unwrap_or((&self.authority, ""));
        host.strip_prefix('[')
            .and_then(|inner| inner.strip_suffix(']'))
            .unwrap_or(host)
    }

    /// The port, never 0.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }
}

fn without_user_information(text: &str) -> String {
    let Some((before, host)) = text.rsplit_once('@') else {
        return text.to_owned();
    };
    let scheme = before.find("://").map_or("", |end| &before[..end + 3]);
    format!("{scheme}***@{host}")
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.authority)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({})", self.url())
    }
}

type Rule = &'static str;

fn normalise(text: &str) -> Result<Address, Rule> {
    let (tls, rest) = split_scheme(text)?;
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    for (character, rule) in [
        ('@', "user information is not allowed"),
        ('?', "a query is not allowed"),
        ('#', "a fragment is not allowed"),
        ('/', "a path is not allowed"),
    ] {
        if authority.contains(character) {
            return Err(rule);
        }
    }
    if authority.is_empty() {
        return Err("the host is missing");
    }
    let (host, port) = split_port(authority)?;
    let port = parse_port(port)?;
    let host = match host {
        Host::Bracketed(inner) | Host::Bare(inner) if inner.contains(':') => normalise_ipv6(inner)?,
        Host::Bracketed(_) => return Err("only an IPv6 address is written in brackets"),
        Host::Bare(name) => normalise_name(name)?,
    };
    Ok(Address {
        authority: format!("{host}:{port}"),
        port,
        tls,
    })
}

/// Whether it is TLS, and what follows.
fn split_scheme(text: &str) -> Result<(bool, &str), Rule> {
    let Some((scheme, rest)) = text.split_once("://") else {
        return Ok((false, text));
    };
    if scheme.eq_ignore_ascii_case("http") {
        Ok((false, rest))
    } else if scheme.eq_ignore_ascii_case("https") {
        Ok((true, rest))
    } else {
        Err("the scheme must be http or https")
    }
}

enum Host<'a> {
    Bracketed(&'a str),
    Bare(&'a str),
}

fn split_port(authority: &str) -> Result<(Host<'_>, &str), Rule> {
    if let Some(after) = authority.strip_prefix('[') {
        let (inner, rest) = after.split_once(']').ok_or("the closing bracket is missing")?;
        let port = rest.strip_prefix(':').ok_or("the port is missing")?;
        return Ok((Host::Bracketed(inner), port));
    }
    let (host, port) = authority.rsplit_once(':').ok_or("the port is missing")?;
    if host.is_empty() {
        return Err("the host is missing");
    }
    Ok((Host::Bare(host), port))
}

fn parse_port(text: &str) -> Result<u16, Rule> {
    const RULE: Rule = "the port must be a number from 1 to 65535";
    if text.is_empty() {
        return Err("the port is missing");
    }
    // `u16::from_str` would accept a sign.
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(RULE);
    }
    match text.parse::<u16>() {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(RULE),
    }
}

fn normalise_ipv6(text: &str) -> Result<String, Rule> {
    let (address, zone) = match text.split_once('%') {
        Some((address, zone)) => (address, Some(zone)),
        None => (text, None),
    };
    let address: Ipv6Addr = address
        .parse()
        .map_err(|_| "the host is not a valid IPv6 address followed by a port; write [address]:port")?;
    match zone {
        // One engine in two spellings would be two backends.
        None => Ok(address
            .to_ipv4_mapped()
            .map_or_else(|| format!("[{address}]"), |address| address.to_string())),
        Some("") => Err("the IPv6 zone id is empty"),
        Some(zone) if zone.bytes().all(is_unreserved) => Ok(format!("[{address}%{zone}]")),
        Some(_) => Err("the IPv6 zone id may have only letters, digits and -._~"),
    }
}

const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn normalise_name(name: &str) -> Result<String, Rule> {
    if !name.is_ascii() {
        return Err("the host has a character outside ASCII; write its xn-- form");
    }
    // Underscores are not legal in host names, but container networks use them in service names.
    if !name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'))
    {
        return Err("the host may have only letters, digits, '-', '_' and '.'");
    }
    // One final dot marks a fully qualified name and keeps the resolver from trying search domains.
    let labels = name.strip_suffix('.').unwrap_or(name);
    if name.len() > MAX_HOST_BYTES || labels.split('.').any(|label| label.len() > 63) {
        return Err("the host is too long");
    }
    if labels.split('.').any(str::is_empty) {
        return Err("the host has an empty part between dots");
    }
    let last = labels.rsplit('.').next().unwrap_or(labels);
    if is_number(last) {
        // Resolvers read "127.1", "2130706433" or "0x7f000001" as addresses; only the one common form is accepted.
        return match name.parse::<Ipv4Addr>() {
            Ok(address) => Ok(address.to_string()),
            Err(_) => Err("the host is not a valid IPv4 address"),
        };
    }
    Ok(name.to_ascii_lowercase())
}

/// Whether resolvers take a host for an IPv4 address that ends in this.
fn is_number(label: &str) -> bool {
    let hexadecimal = label.strip_prefix("0x").or_else(|| label.strip_prefix("0X"));
    hexadecimal.map_or_else(
        || label.bytes().all(|byte| byte.is_ascii_digit()),
        |digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
    )
}

#[cfg(test)]
mod tests;
