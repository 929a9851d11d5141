//! Which addresses may be registered over the network.
//!
//! Whoever may register an engine decides where this process sends requests, and sends them with the engines' key: so
//! an address that no engine has, but a cloud's metadata service does, is refused, and an operator may list the only
//! networks in which engines are. Addresses of a configuration file are the operator's own and not judged.
//!
//! Nothing is resolved here: a name is judged as it is written. What a name resolves to is judged by [`is_forbidden`]
//! where the connection is made, because an answer of the domain name system may differ a second later.

use super::Address;
use crate::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Names under which clouds serve credentials of the machine.
const METADATA_NAMES: [&str; 5] = [
    "metadata",
    "metadata.google.internal",
    "metadata.goog",
    "instance-data",
    "instance-data.ec2.internal",
];

/// Metadata services outside the link-local networks: Azure, Alibaba Cloud, Oracle Cloud.
const METADATA_V4: [Ipv4Addr; 3] = [
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
];

/// The metadata service of AWS over IPv6.
const METADATA_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254);

/// Why no engine is at `address`: it is link-local, a metadata service, or nobody's.
#[must_use]
pub fn is_forbidden(address: IpAddr) -> Option<&'static str> {
    match embedded(address) {
        IpAddr::V4(address) if address.is_link_local() => Some("link-local addresses are refused"),
        IpAddr::V6(address) if address.is_unicast_link_local() => Some("link-local addresses are refused"),
        IpAddr::V4(address) if METADATA_V4.contains(&address) => Some("the address of a metadata service is refused"),
        IpAddr::V6(METADATA_V6) => Some("the address of a metadata service is refused"),
        address if address.is_unspecified() => Some("the unspecified address is where a server binds, not where it is"),
        address if address.is_multicast() || address == IpAddr::V4(Ipv4Addr::BROADCAST) => {
            Some("a multicast or broadcast address is no engine's")
        }
        _ => None,
    }
}

/// The IPv4 address that an IPv6 one stands for (mapped, compatible, or through NAT64), else the address itself.
fn embedded(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    let segments = v6.segments();
    let prefix = &segments[..6];
    let is_embedding = *prefix == [0, 0, 0, 0, 0, 0xffff]
        || *prefix == [0x64, 0xff9b, 0, 0, 0, 0]
        // `::` and `::1` are addresses of their own.
        || (*prefix == [0; 6] && segments[6] != 0);
    if is_embedding {
        let octets = v6.octets();
        return IpAddr::V4(Ipv4Addr::new(octets[12], octets[13], octets[14], octets[15]));
    }
    address
}

/// The rules for addresses that are registered over the network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressRules {
    /// `None`: anything that is not forbidden.
    allowed: Option<Vec<Allowed>>,
}

/// One entry of an allow-list.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Allowed {
    Network {
        base: IpAddr,
        bits: u8,
    },
    Name(String),
    /// A name that ends so, its first dot included.
    Below(String),
}

impl AddressRules {
    /// Rules with an allow-list, unless it is empty: networks (`10.0.0.0/8`, `fd12::/16`), addresses, host names, and
    /// `*.domain` for all names below a domain.
    ///
    /// Fails with [`Error::InvalidAddress`], which names the entry.
    pub fn new<'a>(allowed: impl IntoIterator<Item = &'a str>) -> Result<Self, Error> {
        let entries: Vec<Allowed> = allowed.into_iter().map(Allowed::parse).collect::<Result<_, _>>()?;
        Ok(Self {
            allowed: (!entries.is_empty()).then_some(entries),
        })
    }

    /// Fails with [`Error::InvalidAddress`] when no engine at `address` may be registered.
    pub fn check(&self, address: &Address) -> Result<(), Error> {
        let refused = |rule| Error::InvalidAddress {
            value: address.to_string(),
            rule,
        };
        let host = address.host().split('%').next().unwrap_or_default();
        let name = host.strip_suffix('.').unwrap_or(host);
        let ip = host.parse::<IpAddr>().ok();
        let forbidden = match ip {
            Some(ip) => is_forbidden(ip),
            None => METADATA_NAMES
                .contains(&name)
                .then_some("the name of a metadata service is refused"),
        };
        if let Some(rule) = forbidden {
            return Err(refused(rule));
        }
        match &self.allowed {
            Some(allowed) if !allowed.iter().any(|entry| entry.covers(ip, name)) => {
                Err(refused("it is not in the list of allowed engines (worker_allow)"))
            }
            _ => Ok(()),
        }
    }
}

impl Allowed {
    fn parse(text: &str) -> Result<Self, Error> {
        let refused = || Error::InvalidAddress {
            value: text.to_owned(),
            rule: "an allowed engine is a network (10.0.0.0/8), an address, a host name or *.domain",
        };
        let (base, bits) = match text.split_once('/') {
            Some((base, bits)) => (base, Some(bits)),
            None => (text, None),
        };
        if let Ok(base) = base.parse::<IpAddr>() {
            let longest = if base.is_ipv4() { 32 } else { 128 };
            let bits = match bits {
                None => longest,
                Some(bits) => bits.parse().ok().filter(|bits| *bits <= longest).ok_or_else(refused)?,
            };
            return Ok(Self::Network { base, bits });
        }
        let (domain, is_below) = match text.strip_prefix("*.") {
            Some(domain) => (domain, true),
            None => (text, false),
        };
        // The one judge of host names; the port is not part of the rule.
        let address = Address::parse(&format!("{domain}:1")).map_err(|_| refused())?;
        let name = address.host();
        let is_name = bits.is_none() && !domain.contains(':') && name.parse::<IpAddr>().is_err();
        let name = is_name
            .then(|| name.trim_end_matches('.').to_owned())
            .ok_or_else(refused)?;
        Ok(if is_below {
            Self::Below(format!(".{name}"))
        } else {
            Self::Name(name)
        })
    }

    fn covers(&self, ip: Option<IpAddr>, name: &str) -> bool {
        match (self, ip) {
            (Self::Network { base, bits }, Some(ip)) => {
                is_within(embedded(ip), *base, *bits) || is_within(ip, *base, *bits)
            }
            (Self::Name(allowed), None) => allowed == name,
            (Self::Below(domain), None) => name.ends_with(domain.as_str()),
            _ => false,
        }
    }
}

fn is_within(address: IpAddr, base: IpAddr, bits: u8) -> bool {
    match (address, base) {
        (IpAddr::V4(address), IpAddr::V4(base)) => {
            let differing = u32::from(address) ^ u32::from(base);
            differing.leading_zeros() >= u32::from(bits)
        }
        (IpAddr::V6(address), IpAddr::V6(base)) => {
            let differing = u128::from(address) ^ u128::from(base);
            differing.leading_zeros() >= u32::from(bits)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rules: &AddressRules, address: &str) -> bool {
        rules.check(&Address::parse(address).expect("an address")).is_ok()
    }

    /// Metadata services and link-local networks are refused in every spelling; ordinary engines pass (B51).
    #[test]
    fn b51_metadata_and_link_local_are_refused() {
        let rules = AddressRules::default();
        for address in [
            "169.254.169.254:80",
            "169.254.0.1:30000",
            "[fe80::1]:30000",
            "[fe80::1%eth0]:30000",
            "[febf::1]:30000",
            "[::ffff:169.254.169.254]:80",
            "[::a9fe:a9fe]:80",
            "[64:ff9b::a9fe:a9fe]:80",
            "[fd00:ec2::254]:80",
            "100.100.100.200:80",
            "168.63.129.16:80",
            "metadata.google.internal:80",
            "METADATA.google.internal.:80",
            "metadata:80",
            "0.0.0.0:30000",
            "[::]:30000",
            "224.0.0.1:30000",
            "255.255.255.255:30000",
        ] {
            assert!(!check(&rules, address), "{address}");
        }
        for address in [
            "127.0.0.1:30000",
            "[::1]:30000",
            "10.0.0.1:30000",
            "[fd12::1]:30000",
            "8.8.8.8:30000",
            "node-1:30000",
            "169.253.1.1:30000",
        ] {
            assert!(check(&rules, address), "{address}");
        }
    }

    /// With a list only what it covers passes, and it cannot allow what is forbidden (B51).
    #[test]
    fn b51_an_allow_list_is_the_only_way_in() {
        let rules = AddressRules::new(["10.0.0.0/8", "fd12::/16", "192.168.1.7", "node-1", "*.cluster.local"]);
        let rules = rules.expect("valid entries");
        for address in [
            "10.255.0.1:1",
            "[::ffff:10.0.0.1]:1",
            "[fd12:1::1]:1",
            "192.168.1.7:1",
            "NODE-1:1",
            "a.b.cluster.local:1",
        ] {
            assert!(check(&rules, address), "{address}");
        }
        for address in [
            "11.0.0.1:1",
            "[fd13::1]:1",
            "192.168.1.8:1",
            "node-10:1",
            "cluster.local:1",
            "127.0.0.1:1",
        ] {
            assert!(!check(&rules, address), "{address}");
        }
        let everything = AddressRules::new(["0.0.0.0/0", "::/0"]).expect("valid entries");
        assert!(check(&everything, "8.8.8.8:1"));
        assert!(!check(&everything, "169.254.169.254:80"));
    }

    /// An entry that means nothing is refused where it is written.
    #[test]
    fn entries_that_mean_nothing() {
        for entry in [
            "",
            "10.0.0.0/33",
            "10.0.0.0/x",
            "fd12::/129",
            "node/8",
            "node:1",
            "*",
            "*.",
            "a b",
            "http://a",
        ] {
            let refused = AddressRules::new([entry]);
            assert!(matches!(refused, Err(Error::InvalidAddress { .. })), "{entry:?}");
        }
    }
}
