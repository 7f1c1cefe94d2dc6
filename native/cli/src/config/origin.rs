//! Origins of web pages.

use http::{HeaderValue, Uri};
use std::str::FromStr;

/// The origin of a web page as browsers write it, or `*` for any.
#[derive(Clone, Debug, PartialEq)]
pub struct Origin(HeaderValue);

impl Origin {
    /// Returns true for `*`.
    pub fn is_any(&self) -> bool {
        self.0 == "*"
    }

    /// Returns the value of the `Origin` header that browsers send.
    pub fn header(&self) -> &HeaderValue {
        &self.0
    }
}

impl FromStr for Origin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let as_browsers_write = || {
            let uri: Uri = text.parse().ok()?;
            let (scheme, place) = (uri.scheme_str()?, uri.authority()?.as_str());
            let same = text == format!("{scheme}://{place}").to_lowercase();
            (same && !place.contains('@')).then(|| HeaderValue::from_str(text).ok())?
        };
        let any = (text == "*").then(|| HeaderValue::from_static("*"));
        any.or_else(as_browsers_write).map(Self).ok_or_else(|| {
            "expected an origin as browsers send it, in small letters and without a path: \
             https://example.org, http://localhost:8080; or *"
                .into()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins() {
        for origin in ["*", "https://example.org", "http://localhost:8080", "http://[::1]:80"] {
            assert!(origin.parse::<Origin>().is_ok(), "{origin}");
        }
        for wrong in [
            "",
            "example.org",
            "https://",
            "https://a.org/",
            "https://a.org/x",
            "https://A.org",
            "https://u@a.org",
            "null",
            "https://a b",
            "https://a.org?x",
        ] {
            let error = wrong.parse::<Origin>().expect_err(wrong);
            assert!(error.contains("https://example.org"), "{error}");
        }
    }
}
