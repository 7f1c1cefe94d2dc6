//! The client of a request: whom limits are counted for.

use axum::extract::Request;
use axum::http::{HeaderMap, header};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::from_utf8;
use wf_run_cli::config::TrustedProxy;

/// The owner of a request for limits: an API key, or an address where there are no keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Client {
    /// Number of the API key.
    Key(u64),
    /// Address of the client; of IPv6, its network of 64 bits.
    Address(IpAddr),
}

/// Address of the other end of a connection: a client or a proxy.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub IpAddr);

impl Client {
    /// Returns the client with this address.
    pub fn address(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            // One customer has a whole network of this size.
            IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64)).into(),
            v4 => v4,
        })
    }

    /// Returns the client of a request without a key. A proxy that is trusted names its client in
    /// `X-Forwarded-For` or `Forwarded`; other addresses may not.
    pub fn of(request: &Request, proxies: &[TrustedProxy]) -> Self {
        let unknown = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let peer = request.extensions().get().map_or(unknown, |Peer(address)| *address);
        let trusted = |address: IpAddr| proxies.iter().any(|proxy| proxy.contains(address));
        if !trusted(peer) {
            return Self::address(peer);
        }
        // Each proxy appends the address that it saw. What stands before the last address that is no
        // proxy's was written by a stranger.
        let mut forwarded = forwarded(request.headers()).into_iter().rev();
        let client = forwarded.find_map(|address| match address {
            Some(address) if trusted(address) => None,
            other => Some(other),
        });
        Self::address(client.flatten().unwrap_or(peer))
    }
}

/// Returns the addresses that proxies have added, the nearest one last; `None` for one that is no
/// address. Bytes that are no text are no address: a list is never left out, because a client that could
/// hide the proxy's list would choose its address in the other header.
fn forwarded(headers: &HeaderMap) -> Vec<Option<IpAddr>> {
    let elements = |name| {
        let lists = headers.get_all(name).into_iter();
        lists.flat_map(|list| list.as_bytes().split(|&byte| byte == b',')).map(from_utf8)
    };
    let mut addresses: Vec<_> =
        elements("x-forwarded-for").map(|element| address(element.ok()?)).collect();
    if addresses.is_empty() {
        let standard = elements(header::FORWARDED.as_str());
        addresses = standard.map(|element| forwarded_for(element.ok()?)).collect();
    }
    addresses
}

/// Returns the address in an element of `Forwarded`, such as `for="[2001:db8::1]:80";proto=https`.
fn forwarded_for(element: &str) -> Option<IpAddr> {
    element.split(';').find_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        let value = value.trim().trim_matches('"');
        name.trim().eq_ignore_ascii_case("for").then(|| address(value))?
    })
}

/// Parses an address with or without a port.
fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    if let Some((address, _)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return address.parse().ok();
    }
    text.parse().ok().or_else(|| text.rsplit_once(':')?.0.parse::<Ipv4Addr>().ok().map(Into::into))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use axum::http::HeaderValue;

    fn client(peer: &str, headers: &[(&str, &str)], proxies: &[&str]) -> String {
        let mut request = Request::builder();
        for (name, value) in headers {
            // A `?` stands for a byte that is no text.
            let bytes: Vec<u8> =
                value.bytes().map(|byte| if byte == b'?' { 0xff } else { byte }).collect();
            request = request.header(*name, HeaderValue::from_bytes(&bytes).expect("a value"));
        }
        let mut request = request.body(Body::empty()).expect("a request");
        request.extensions_mut().insert(Peer(peer.parse().expect("an address")));
        let proxies: Vec<_> = proxies.iter().map(|p| p.parse().expect("a proxy")).collect();
        match Client::of(&request, &proxies) {
            Client::Address(address) => address.to_string(),
            Client::Key(_) => unreachable!("requests have no key here"),
        }
    }

    #[test]
    fn only_trusted_proxies_name_their_client() {
        let said = ("x-forwarded-for", "1.1.1.1, 9.9.9.9");
        assert_eq!(client("10.0.0.7", &[said], &[]), "10.0.0.7");
        assert_eq!(client("10.0.0.7", &[said], &["10.0.0.8"]), "10.0.0.7");
        assert_eq!(client("10.0.0.7", &[said], &["10.0.0.7"]), "9.9.9.9");
        assert_eq!(client("10.0.0.7", &[said], &["10.0.0.0/8", "9.9.9.9"]), "1.1.1.1");
        assert_eq!(client("10.0.0.7", &[], &["10.0.0.7"]), "10.0.0.7");
        let unknown = ("x-forwarded-for", "1.1.1.1, unknown");
        assert_eq!(client("10.0.0.7", &[unknown], &["10.0.0.7"]), "10.0.0.7");
        let standard = ("forwarded", "for=1.1.1.1;proto=http, For=\"[2001:db8::1:0:0:1]:80\"");
        assert_eq!(client("::1", &[standard], &["::1"]), "2001:db8::");
        assert_eq!(
            client("::ffff:10.0.0.7", &[("x-forwarded-for", "9.9.9.9:80")], &["10.0.0.7"]),
            "9.9.9.9"
        );
    }
    /// Whatever a client writes in front of what the proxy adds, the proxy's word counts.
    #[test]
    fn a_client_of_a_proxy_cannot_choose_its_address() {
        let proxies = ["10.0.0.7"];
        let behind = |headers: &[(&str, &str)]| client("10.0.0.7", headers, &proxies);
        for forged in
            ["1.1.1.1", "?", "?, 1.1.1.1", "\"", "for=\"", "[", "[::1]:x", "a,,b", ",", ""]
        {
            let list = format!("{forged}, 9.9.9.9");
            assert_eq!(behind(&[("x-forwarded-for", &list)]), "9.9.9.9", "{forged}");
            let list = format!("{forged}, for=9.9.9.9");
            assert_eq!(behind(&[("forwarded", &list)]), "9.9.9.9", "{forged}");
            let headers = [("x-forwarded-for", forged), ("x-forwarded-for", "9.9.9.9")];
            assert_eq!(behind(&headers), "9.9.9.9", "{forged} in a header of its own");
        }
        let other = ("forwarded", "for=1.1.1.1");
        assert_eq!(behind(&[("x-forwarded-for", "?, 9.9.9.9"), other]), "9.9.9.9");
        for unknown in
            ["?", "", "unknown", "_hidden", "9.9.9.9.9", "9.9.9.9, ?", "[::1", "fe80::1%eth0"]
        {
            assert_eq!(behind(&[("x-forwarded-for", unknown), other]), "10.0.0.7", "{unknown}");
        }
    }

    #[test]
    fn addresses_have_many_forms() {
        for (text, want) in [
            (" 9.9.9.9 ", "9.9.9.9"),
            ("9.9.9.9:65535", "9.9.9.9"),
            ("2001:db8::1", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("[2001:db8::1]:80", "2001:db8::1"),
            ("::ffff:9.9.9.9", "::ffff:9.9.9.9"),
        ] {
            assert_eq!(address(text).map(|address| address.to_string()).as_deref(), Some(want));
        }
        for wrong in ["", ":", "[]", "[x]:1", "9.9.9", "9.9.9.9:80:80", "example.org", "1e3"] {
            assert_eq!(address(wrong), None, "{wrong}");
        }
    }
}
