//! The order of samplers that a request of llama-server's API names.

use crate::error::ApiError;
use serde::Deserialize;
use utoipa::ToSchema;
use wrinklefree::decode::SamplingParams;

/// Samplers in the order of the engine: the name, other names, llama-server's letter, a test whether the
/// parameters use it, and a change that turns it off.
const SAMPLERS: [Sampler; 10] = [
    Sampler {
        names: &["penalties"],
        letter: 'e',
        is_on: |p| {
            (p.repetition_penalty, p.frequency_penalty, p.presence_penalty) != (1.0, 0.0, 0.0)
        },
        turn_off: |p| {
            (p.repetition_penalty, p.frequency_penalty, p.presence_penalty) = (1.0, 0.0, 0.0);
        },
    },
    Sampler {
        names: &["dry"],
        letter: 'd',
        is_on: |p| p.dry.is_some(),
        turn_off: |p| p.dry = None,
    },
    Sampler {
        names: &["temperature", "temp"],
        letter: 't',
        is_on: |p| p.temperature != 1.0,
        turn_off: |p| p.temperature = 1.0,
    },
    Sampler {
        names: &["top_n_sigma", "top-n-sigma"],
        letter: 's',
        is_on: |p| p.top_n_sigma > 0.0,
        turn_off: |p| p.top_n_sigma = 0.0,
    },
    Sampler {
        names: &["top_k", "top-k"],
        letter: 'k',
        is_on: |p| p.top_k > 0,
        turn_off: |p| p.top_k = 0,
    },
    Sampler {
        names: &["typ_p", "typical_p", "typical-p", "typ-p", "typical", "typ"],
        letter: 'y',
        is_on: |p| p.typical_p < 1.0,
        turn_off: |p| p.typical_p = 1.0,
    },
    Sampler {
        names: &["top_p", "top-p", "nucleus"],
        letter: 'p',
        is_on: |p| p.top_p < 1.0,
        turn_off: |p| p.top_p = 1.0,
    },
    Sampler {
        names: &["min_p", "min-p"],
        letter: 'm',
        is_on: |p| p.min_p > 0.0,
        turn_off: |p| p.min_p = 0.0,
    },
    Sampler {
        names: &["xtc"],
        letter: 'x',
        is_on: |p| p.xtc_probability > 0.0,
        turn_off: |p| p.xtc_probability = 0.0,
    },
    Sampler {
        names: &["infill"],
        letter: 'i',
        is_on: |p| p.infill.is_some(),
        turn_off: |p| p.infill = None,
    },
];
/// Place of the temperature in [`SAMPLERS`].
const TEMPERATURE: usize = 2;
/// Places of samplers whose result does not depend on the temperature.
const BESIDE_TEMPERATURE: [usize; 2] = [3, 4];

/// A sampler.
struct Sampler {
    names: &'static [&'static str],
    letter: char,
    is_on: fn(&SamplingParams) -> bool,
    turn_off: fn(&mut SamplingParams),
}

/// The samplers to use, in their order: an array of names, or a string of letters.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected an array of names or a string of letters")]
pub enum SamplerOrder {
    Names(Vec<String>),
    Letters(String),
}

impl SamplerOrder {
    /// Turns off the samplers that the order does not name.
    ///
    /// # Errors
    /// If a sampler is unknown, named twice, or used in another order than the engine's.
    pub fn apply(&self, params: &mut SamplingParams) -> Result<(), ApiError> {
        let bad = |message: String| Err(ApiError::bad("samplers", message));
        let mut order = Vec::new();
        for name in self.names() {
            let known = |sampler: &Sampler| {
                sampler.names.contains(&name.as_str()) || sampler.letter.to_string() == name
            };
            match SAMPLERS.iter().position(known) {
                None => {
                    let own: Vec<&str> = SAMPLERS.iter().map(|sampler| sampler.names[0]).collect();
                    return bad(format!("samplers has `{name}`: use {}", own.join(", ")));
                }
                Some(place) if order.contains(&place) => {
                    return bad(format!("samplers has `{name}` twice: name it once"));
                }
                Some(place) => order.push(place),
            }
        }
        for (place, sampler) in SAMPLERS.iter().enumerate() {
            if !order.contains(&place) {
                (sampler.turn_off)(params);
            }
        }
        // A sampler that changes nothing may stand anywhere.
        order.retain(|&place| (SAMPLERS[place].is_on)(params));
        let swapped = order.iter().enumerate().find_map(|(index, &first)| {
            let second =
                order[index..].iter().find(|&&second| second < first && !commute(first, second));
            second.map(|&second| [first, second].map(|place| SAMPLERS[place].names[0]))
        });
        match swapped {
            None => Ok(()),
            Some([first, second]) => bad(format!(
                "samplers has {first} before {second}, but this server uses {second} first"
            )),
        }
    }

    /// Returns the names one by one: the first wrong one is an error, and a text may have millions.
    fn names(&self) -> impl Iterator<Item = String> {
        let (names, letters) = match self {
            Self::Names(names) => (&names[..], ""),
            Self::Letters(letters) => (&[][..], letters.as_str()),
        };
        names.iter().cloned().chain(letters.chars().map(String::from))
    }
}

/// Returns true if two samplers have the same result in both orders.
fn commute(a: usize, b: usize) -> bool {
    b == TEMPERATURE && BESIDE_TEMPERATURE.contains(&a)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params() -> SamplingParams {
        SamplingParams { temperature: 0.8, top_k: 40, top_p: 0.9, ..SamplingParams::default() }
    }

    fn apply(names: &[&str]) -> Result<SamplingParams, String> {
        let mut params = params();
        let order = SamplerOrder::Names(names.iter().map(|name| name.to_string()).collect());
        order.apply(&mut params).map(|()| params).map_err(|error| error.message)
    }

    #[test]
    fn samplers_that_are_not_named_are_off() {
        let only = apply(&["top_k", "nucleus"]).unwrap();
        assert_eq!((only.temperature, only.top_k, only.top_p), (1.0, 40, 0.9));
        let none = apply(&[]).unwrap();
        assert_eq!((none.temperature, none.top_k, none.top_p), (1.0, 0, 1.0));
        let all = apply(&["penalties", "dry", "top_k", "temperature", "typ_p", "top_p"]).unwrap();
        assert_eq!((all.temperature, all.top_k, all.top_p), (0.8, 40, 0.9));
        let mut letters = params();
        SamplerOrder::Letters("edskt".into()).apply(&mut letters).unwrap();
        assert_eq!((letters.temperature, letters.top_k, letters.top_p), (0.8, 40, 1.0));
    }

    #[test]
    fn other_orders_are_refused() {
        let wrong = apply(&["top_p", "temperature"]).unwrap_err();
        assert!(wrong.contains("top_p before temperature"), "{wrong}");
        assert!(apply(&["top_p", "top_k"]).is_err());
        assert!(apply(&["top_k", "top_k"]).unwrap_err().contains("twice"));
        assert!(apply(&["top_k", "penalties2"]).unwrap_err().contains("`penalties2`"));
        // min_p is off, so its place does not matter.
        assert!(apply(&["min_p", "top_k", "top_p"]).is_ok());
    }
}
