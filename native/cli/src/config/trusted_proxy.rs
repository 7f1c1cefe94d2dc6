//! Proxies that name their clients.

use std::net::IpAddr;
use std::str::FromStr;

/// Addresses of a proxy: one, or a network such as `10.0.0.0/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrustedProxy {
    address: IpAddr,
    /// Number of leading bits that count.
    bits: u32,
}

impl TrustedProxy {
    /// Returns true if `address` is one of the proxy's.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differing = own.to_bits() ^ other.to_bits();
                differing.leading_zeros() >= self.bits
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differing = own.to_bits() ^ other.to_bits();
                differing.leading_zeros() >= self.bits
            }
            _ => false,
        }
    }
}

impl FromStr for TrustedProxy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
            let address: IpAddr = address.parse().ok()?;
            let all: u32 = if address.is_ipv4() { 32 } else { 128 };
            let bits = bits.map_or(Some(all), |bits| bits.parse().ok().filter(|&n| n <= all))?;
            // Addresses of IPv4 are compared as such, also if they are written as ones of IPv6.
            Some(match address.to_canonical() {
                v4 @ IpAddr::V4(_) => Self { address: v4, bits: bits.saturating_sub(all - 32) },
                v6 => Self { address: v6, bits },
            })
        };
        parse().ok_or_else(|| {
            "expected an address or a network, such as 10.0.0.7, 10.0.0.0/8 or fd00::/8".into()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_are_addresses_or_networks() {
        for right in ["10.0.0.7", "10.0.0.0/8", "::1", "fd00::/8", "0.0.0.0/0"] {
            assert!(right.parse::<TrustedProxy>().is_ok(), "{right}");
        }
        let mapped: TrustedProxy = "::ffff:10.0.0.0/104".parse().expect("a network of IPv4");
        let contains = |address: &str| mapped.contains(address.parse().expect("an address"));
        assert!(contains("10.9.9.9") && contains("::ffff:10.0.0.1") && !contains("11.0.0.1"));
        for wrong in ["", "proxy", "10.0.0.0/33", "10.0.0.0/", "10.0.0/8", "::1/129"] {
            assert!(wrong.parse::<TrustedProxy>().is_err(), "{wrong}");
        }
    }
}
