//! The address that a server listens on.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

/// An IP address, or `localhost`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// This address.
    Address(IpAddr),
    /// This machine alone, through IPv4 and IPv6.
    Localhost,
}

impl Host {
    /// Returns the addresses to listen on, in order; those after the first may be missing.
    pub fn addresses(self) -> Vec<IpAddr> {
        match self {
            Self::Address(address) => vec![address],
            Self::Localhost => {
                vec![Ipv4Addr::LOCALHOST.into(), std::net::Ipv6Addr::LOCALHOST.into()]
            }
        }
    }

    /// Returns true if only this machine can reach it.
    pub fn is_loopback(self) -> bool {
        self.addresses().iter().all(IpAddr::is_loopback)
    }
}

impl FromStr for Host {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.eq_ignore_ascii_case("localhost") {
            Ok(Self::Localhost)
        } else {
            text.parse().map(Self::Address).map_err(|_| {
                "expected an IP address such as 127.0.0.1 or 0.0.0.0, or localhost".into()
            })
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Localhost => f.write_str("localhost"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts() {
        let host = |text: &str| text.parse::<Host>();
        assert!(
            host("localhost").is_ok_and(|host| host.is_loopback() && host.addresses().len() == 2)
        );
        assert!(host("127.0.0.1").is_ok_and(Host::is_loopback) && host("::1").is_ok());
        assert!(host("0.0.0.0").is_ok_and(|host| !host.is_loopback()));
        for wrong in ["", "example.org", "127.0.0.1:80"] {
            assert!(host(wrong).is_err(), "{wrong}");
        }
    }
}
