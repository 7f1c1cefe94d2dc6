//! The requests to a hub. Nothing that a server sends is trusted: redirects are followed up to a
//! limit and never to plain HTTP, the token goes to the hub's own host alone, and every answer has a
//! limit of bytes and of silence.

use super::error::Failure;
use super::{Place, names};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::Value;
use std::io::Read;
use std::time::Duration;
use ureq::http::{Response, StatusCode, Uri, header};
use ureq::{Agent, Body};

/// Redirects that one request may take.
const REDIRECTS: usize = 10;
/// Largest list of a repository's files, in bytes.
const LARGEST_LIST: u64 = 32 << 20;
/// Longest explanation of an error that is read, in bytes.
const LARGEST_ERROR: u64 = 64 << 10;
/// Time to find the hub's address and to connect.
const CONNECT: Duration = Duration::from_secs(20);

/// Characters of a path's component that stay as they are.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

const LINKED_TAG: &str = "x-linked-etag";
const LINKED_SIZE: &str = "x-linked-size";
const COMMIT: &str = "x-repo-commit";
const ERROR: &str = "x-error-message";

/// A question to a hub.
#[derive(Clone, Copy)]
enum Ask {
    /// The headers of a file.
    Description,
    /// The headers and the first byte of a file, for a mirror that does not know the method HEAD.
    FirstByte,
    /// Everything from an offset on.
    From(u64),
}

impl Ask {
    /// Returns true if the hub's own headers are wanted, and not those of a store elsewhere.
    fn describes(self) -> bool {
        !matches!(self, Self::From(_))
    }

    /// Returns the part of the file.
    fn range(self) -> Option<String> {
        match self {
            Self::Description | Self::From(0) => None,
            Self::FirstByte => Some("bytes=0-0".into()),
            Self::From(first) => Some(format!("bytes={first}-")),
        }
    }
}

/// A client of one hub.
pub struct Client {
    agent: Agent,
    base: String,
    endpoint: Uri,
    authorization: Option<String>,
}

/// The hub's description of a repository at one commit.
pub struct Listing {
    pub commit: String,
    pub files: Vec<String>,
}

/// The hub's description of a file, with names that the cache's layout allows.
pub struct Description {
    pub blob: String,
    /// `None`: only the answer with the contents says it.
    pub size: Option<u64>,
}

/// The contents of a file from an offset on.
pub struct Contents {
    pub reader: Box<dyn Read>,
    /// Zero if the server ignored the offset.
    pub start: u64,
    /// Size of the whole file.
    pub total: Option<u64>,
}

impl Client {
    /// Makes a client. Nothing is sent yet.
    pub fn new(place: &Place) -> Result<Self, Failure> {
        let endpoint: Uri = place
            .endpoint
            .parse()
            .ok()
            .filter(|uri| scheme(uri).is_some() && uri.host().is_some())
            .ok_or_else(|| Failure::Refused("HF_ENDPOINT is no http or https address".into()))?;
        let config = Agent::config_builder()
            .user_agent(concat!("wrinklefree/", env!("CARGO_PKG_VERSION")))
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_resolve(Some(CONNECT))
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(place.silence))
            .timeout_per_read(Some(place.silence));
        Ok(Self {
            agent: config.build().into(),
            base: place.endpoint.clone(),
            endpoint,
            authorization: place.token.as_ref().map(|token| format!("Bearer {token}")),
        })
    }

    /// Lists the files of a repository at a branch, tag or commit.
    pub fn list(&self, repo: &str, revision: &str) -> Result<Listing, Failure> {
        #[derive(Deserialize)]
        struct Info {
            sha: String,
            siblings: Vec<Sibling>,
        }
        #[derive(Deserialize)]
        struct Sibling {
            rfilename: String,
        }
        let url = format!("{}/api/models/{repo}/revision/{}", self.base, encode(revision));
        let mut answer = checked(self.send(Ask::From(0), &url)?)?;
        let text = answer.body_mut().with_config().limit(LARGEST_LIST).read_to_vec()?;
        let info: Info = serde_json::from_slice(&text).map_err(|e| {
            Failure::Refused(match explanation(&text) {
                Some(said) => said,
                None => format!("its answer is no description of a model ({e})"),
            })
        })?;
        if !names::is_commit(&info.sha) {
            let sha = info.sha.chars().take(80).collect::<String>();
            return Err(Failure::Refused(format!("it names the commit {sha:?}, which is no hash")));
        }
        let files = info.siblings.into_iter().map(|s| s.rfilename).collect();
        Ok(Listing { commit: info.sha, files })
    }

    /// Returns the address of a file at a commit.
    pub fn url(&self, repo: &str, commit: &str, name: &str) -> String {
        let name: Vec<_> = name.split('/').map(encode).collect();
        format!("{}/{repo}/resolve/{commit}/{}", self.base, name.join("/"))
    }

    /// Asks for the size and the blob of a file.
    pub fn describe(&self, url: &str, commit: &str) -> Result<Description, Failure> {
        let mut answer = self.send(Ask::Description, url)?;
        if matches!(answer.status().as_u16(), 405 | 501) {
            answer = self.send(Ask::FirstByte, url)?;
        }
        let elsewhere = answer.status().is_redirection();
        let answer = if elsewhere { answer } else { checked(answer)? };
        let get = |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok());
        if let Some(other) = get(COMMIT).filter(|other| *other != commit) {
            return Err(Failure::Refused(format!("it sends commit {other:?} instead of {commit}")));
        }
        let tag = get(LINKED_TAG).or_else(|| get("etag"));
        let tag = tag.ok_or_else(|| Failure::Refused("it sends no ETag".into()))?;
        let blob = names::blob(tag)
            .ok_or_else(|| Failure::Refused(format!("its ETag {tag:?} cannot name a file")))?;
        let size = match number(&answer, LINKED_SIZE)? {
            None if answer.status() == StatusCode::PARTIAL_CONTENT => range(&answer)?.1,
            None if !elsewhere => length(&answer)?,
            linked => linked,
        };
        Ok(Description { blob: blob.into(), size })
    }

    /// Asks for the contents of a file from an offset on.
    pub fn contents(&self, url: &str, from: u64) -> Result<Contents, Failure> {
        let answer = self.send(Ask::From(from), url)?;
        if answer.status() == StatusCode::RANGE_NOT_SATISFIABLE && from > 0 {
            return self.contents(url, 0);
        }
        let answer = checked(answer)?;
        let (start, total) = match answer.status() {
            StatusCode::PARTIAL_CONTENT => range(&answer)?,
            _ => (0, length(&answer)?),
        };
        if start != 0 && start != from {
            return Err(Failure::Refused(format!("it sends bytes from {start} instead of {from}")));
        }
        Ok(Contents { reader: Box::new(answer.into_body().into_reader()), start, total })
    }

    /// Sends a request and follows redirects. A question about a file stops where the hub has
    /// described it, and before it leaves the hub.
    fn send(&self, ask: Ask, url: &str) -> Result<Response<Body>, Failure> {
        let mut uri: Uri = url.parse().map_err(|e| Failure::Refused(format!("{url}: {e}")))?;
        for _ in 0..=REDIRECTS {
            let mut request = match ask {
                Ask::Description => self.agent.head(&uri),
                _ => self.agent.get(&uri),
            };
            // Lengths are those of the file, and not of a compressed form.
            request = request.header(header::ACCEPT_ENCODING, "identity");
            if let Some(range) = ask.range() {
                request = request.header(header::RANGE, range);
            }
            if let Some(token) = self.authorization.as_ref().filter(|_| self.is_own(&uri)) {
                request = request.header(header::AUTHORIZATION, token);
            }
            let answer = request.call()?;
            let Some(next) = redirect(&uri, &answer)? else { return Ok(answer) };
            let described = answer.headers().contains_key(LINKED_TAG) || !self.is_own(&next);
            if ask.describes() && described {
                return Ok(answer);
            }
            uri = next;
        }
        Err(Failure::Refused(format!("it redirects more than {REDIRECTS} times")))
    }

    /// Returns true for addresses of the hub itself.
    fn is_own(&self, uri: &Uri) -> bool {
        origin(uri) == origin(&self.endpoint)
    }
}

fn encode(text: &str) -> String {
    utf8_percent_encode(text, PLAIN).to_string()
}

/// Returns the scheme and its usual port, if it is one of the web's.
fn scheme(uri: &Uri) -> Option<(&'static str, u16)> {
    [("http", 80), ("https", 443)].into_iter().find(|(name, _)| uri.scheme_str() == Some(name))
}

/// Returns scheme, host and port.
fn origin(uri: &Uri) -> Option<(&'static str, String, u16)> {
    let (scheme, port) = scheme(uri)?;
    Some((scheme, uri.host()?.to_ascii_lowercase(), uri.port_u16().unwrap_or(port)))
}

/// Returns the address that an answer redirects to, if it does.
fn redirect(from: &Uri, answer: &Response<Body>) -> Result<Option<Uri>, Failure> {
    let follows = matches!(answer.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let Some(location) = answer.headers().get(header::LOCATION).filter(|_| follows) else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(location.as_bytes()).into_owned();
    let odd = |why: &str| {
        let text = text.chars().take(200).collect::<String>();
        Failure::Refused(format!("it redirects to {text:?}{why}"))
    };
    let to = join(from, &text).ok_or_else(|| odd(", which is no web address"))?;
    if from.scheme_str() == Some("https") && to.scheme_str() != Some("https") {
        return Err(odd(", which is not encrypted"));
    }
    Ok(Some(to))
}

/// Resolves the text of a `Location` header.
fn join(from: &Uri, location: &str) -> Option<Uri> {
    let (scheme, host) = (from.scheme_str()?, from.authority()?);
    let begin = location.split(['/', '?', '#']).next().unwrap_or_default();
    let location = location.split('#').next().unwrap_or_default();
    let absolute = if begin.ends_with(':') || begin.contains(':') {
        location.into()
    } else if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else if location.starts_with('/') {
        format!("{scheme}://{host}{location}")
    } else {
        let folder = from.path().rsplit_once('/').map_or("", |(folder, _)| folder);
        format!("{scheme}://{host}{folder}/{location}")
    };
    absolute.parse().ok().filter(|uri| origin(uri).is_some())
}

/// Turns an answer that is no success into a failure, with what the hub says about it.
fn checked(mut answer: Response<Body>) -> Result<Response<Body>, Failure> {
    if answer.status().is_success() {
        return Ok(answer);
    }
    let header = answer.headers().get(ERROR).map(|e| String::from_utf8_lossy(e.as_bytes()).into());
    let said = header.or_else(|| {
        let text = answer.body_mut().with_config().limit(LARGEST_ERROR).read_to_vec().ok()?;
        explanation(&text)
    });
    Err(Failure::of_status(answer.status().as_u16(), &said.unwrap_or_default()))
}

/// Returns what an error in JSON says.
fn explanation(text: &[u8]) -> Option<String> {
    let value: Value = serde_json::from_slice(text).ok()?;
    let error = value.get("error").unwrap_or(&value);
    let said = error.as_str().or_else(|| error.get("message")?.as_str())?.trim();
    (!said.is_empty()).then(|| said.into())
}

/// Reads a header that is a number, if it is there.
fn number(answer: &Response<Body>, name: &str) -> Result<Option<u64>, Failure> {
    let Some(value) = answer.headers().get(name) else { return Ok(None) };
    let number = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    number.map(Some).ok_or_else(|| Failure::Refused(format!("it sends no number as {name}")))
}

/// Reads the length of an answer, if it is known before the answer ends.
fn length(answer: &Response<Body>) -> Result<Option<u64>, Failure> {
    number(answer, header::CONTENT_LENGTH.as_str())
}

/// Reads `Content-Range: bytes 5-9/10`: the first byte and the size of the whole file.
fn range(answer: &Response<Body>) -> Result<(u64, Option<u64>), Failure> {
    let parse = || {
        let text = answer.headers().get(header::CONTENT_RANGE)?.to_str().ok()?;
        let (part, total) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
        Some((part.split_once('-')?.0.trim().parse().ok()?, total.trim().parse().ok()))
    };
    parse().ok_or_else(|| Failure::Refused("it sends a part of a file without its place".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations() {
        let from: Uri = "https://hub.example/org/name/resolve/main/a?x=1".parse().expect("valid");
        for (location, to) in [
            ("https://cdn.example/a?b=c#d", Some("https://cdn.example/a?b=c")),
            ("//cdn.example/a", Some("https://cdn.example/a")),
            ("/other/b", Some("https://hub.example/other/b")),
            ("b?c=a:b", Some("https://hub.example/org/name/resolve/main/b?c=a:b")),
            ("file:///etc/passwd", None),
            ("ftp://cdn.example/a", None),
            ("javascript:1", None),
            ("https:///a", None),
            ("\u{0}", None),
        ] {
            assert_eq!(
                join(&from, location).map(|uri| uri.to_string()).as_deref(),
                to,
                "{location}"
            );
        }
    }

    #[test]
    fn encryption_is_not_given_up() {
        let to = |from: &str, location: &str| {
            let answer = Response::builder().status(302).header(header::LOCATION, location);
            let answer = answer.body(Body::builder().data("")).expect("valid");
            redirect(&from.parse().expect("valid"), &answer).map(|to| to.expect("an address"))
        };
        assert!(to("https://hub.example/a", "https://cdn.example/a").is_ok());
        assert!(to("http://hub.example/a", "https://cdn.example/a").is_ok());
        let refused = to("https://hub.example/a", "http://hub.example/a").expect_err("refused");
        assert!(refused.reason().contains("not encrypted"), "{refused:?}");
    }

    #[test]
    fn origins() {
        let origin = |text: &str| origin(&text.parse().expect("valid"));
        assert_eq!(origin("https://Hub.example/a"), origin("https://hub.example:443/b"));
        for other in [
            "http://hub.example/a",
            "https://hub.example:8443/a",
            "https://hub.example.evil.example/a",
            "https://hub.example@evil.example/a",
        ] {
            assert_ne!(origin("https://hub.example/a"), origin(other), "{other}");
        }
    }

    #[test]
    fn explanations() {
        let said = |text: &str| explanation(text.as_bytes());
        assert_eq!(said(r#"{"error":"no such"}"#).as_deref(), Some("no such"));
        assert_eq!(said(r#"{"error":{"message":"no such"}}"#).as_deref(), Some("no such"));
        assert_eq!(said(r#"{"message":"no such"}"#).as_deref(), Some("no such"));
        assert_eq!(said("<html>"), None);
        assert_eq!(said("{}"), None);
    }
}
