//! The `GenRM` adapter: a judge is asked with messages on `/generate` and answers with one text.
//!
//! A reward model is asked `{"messages": [...], "sampling_params": {...}}` and answered `{"response": "..."}`, by
//! clients that know neither chat templates nor the shape of a chat completion. Such a request runs as a chat completion
//! on the engine, which has the template, under the lease, session and abort rules of every other request: it is
//! translated here, between the peek and the lease, and its answer on the way back. A raw body (`text`, `input_ids`)
//! for the same model passes untouched.
//!
//! Nothing is dropped on the way: a name that a chat completion would ignore is refused, because a judge that silently
//! runs with other parameters gives other rewards.

mod answer;

use crate::body::Received;
use crate::error::{Code, Failure};
use crate::peek::Field;
pub(crate) use answer::answer;
use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fmt::Write as _;

type Parameters = BTreeMap<String, Box<RawValue>>;

/// Sampling parameters that a chat completion knows under another name.
const RENAMED: [(&str, &str); 4] = [
    ("max_new_tokens", "max_tokens"),
    ("max_response_len", "max_tokens"),
    ("min_new_tokens", "min_tokens"),
    ("sampling_seed", "seed"),
];

/// Those it knows under their own.
const KEPT: [&str; 18] = [
    "custom_params",
    "ebnf",
    "frequency_penalty",
    "ignore_eos",
    "logit_bias",
    "min_p",
    "no_stop_trim",
    "presence_penalty",
    "regex",
    "repetition_penalty",
    "seed",
    "skip_special_tokens",
    "stop",
    "stop_regex",
    "stop_token_ids",
    "temperature",
    "top_k",
    "top_p",
];

/// Makes the headers of a question those of a chat completion whose answer can be read here.
pub(crate) fn prepare(headers: &mut HeaderMap) {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.remove(ACCEPT_ENCODING);
}

/// How one model judges.
#[derive(Clone, Debug)]
pub struct Genrm {
    /// By their names in a chat completion.
    defaults: Parameters,
    chat_template_kwargs: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Question<'a> {
    #[serde(borrow)]
    messages: &'a RawValue,
    #[serde(default)]
    sampling_params: Option<Parameters>,
    #[serde(borrow, default)]
    rid: Option<&'a RawValue>,
    /// The routing has read these.
    #[serde(default, rename = "model")]
    _model: IgnoredAny,
    #[serde(default, rename = "route_key")]
    _route_key: IgnoredAny,
    #[serde(default, rename = "session_id")]
    _session_id: IgnoredAny,
    #[serde(default, rename = "user")]
    _user: IgnoredAny,
}

impl Genrm {
    /// `sampling_defaults` and `chat_template_kwargs` are JSON objects. The error says what is wrong with them.
    pub fn new(sampling_defaults: &str, chat_template_kwargs: Option<&str>) -> Result<Self, String> {
        let defaults: Parameters =
            serde_json::from_str(sampling_defaults).map_err(|error| format!("sampling_defaults: {error}"))?;
        let kwargs = chat_template_kwargs.map(|text| {
            let parsed: Result<Parameters, _> = serde_json::from_str(text);
            parsed
                .and_then(|_| RawValue::from_string(text.to_owned()))
                .map_err(|error| format!("chat_template_kwargs: {error}"))
        });
        let mut genrm = Self {
            defaults: Parameters::new(),
            chat_template_kwargs: kwargs.transpose()?,
        };
        genrm.defaults = genrm
            .sampling(defaults)
            .map_err(|error| format!("sampling_defaults: {error}"))?;
        Ok(genrm)
    }

    /// Turns a question into a chat completion; tells whether it was one.
    pub(crate) fn translate(&self, received: &mut Received) -> Result<bool, Failure> {
        let refused = |message: &str| Err(Failure::new(Code::InvalidRequest, message));
        let has = |field| received.peek.value(field).is_some();
        match (has(Field::Messages), has(Field::Input)) {
            (false, true) => return Ok(false),
            (false, false) => return refused("nothing to judge: send \"messages\", or \"text\" or \"input_ids\""),
            (true, true) => return refused("\"messages\" and \"text\" or \"input_ids\" exclude each other"),
            (true, false) => {}
        }
        let chat = self.chat(&received.to_bytes());
        let chat = chat.map_err(|message| Failure::new(Code::InvalidRequest, message))?;
        received.replace(Bytes::from(chat))?;
        Ok(true)
    }

    fn chat(&self, body: &[u8]) -> Result<String, String> {
        let question: Question<'_> = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        let messages = question.messages.get();
        if !messages.starts_with('[') || messages[1..].trim_start().starts_with(']') {
            return Err("\"messages\" must be a list of at least one message".to_owned());
        }
        let mut chat = format!("{{\"messages\":{messages},\"stream\":false,\"separate_reasoning\":false");
        if let Some(kwargs) = &self.chat_template_kwargs {
            let _ = write!(chat, ",\"chat_template_kwargs\":{kwargs}");
        }
        if let Some(rid) = question.rid {
            let _ = write!(chat, ",\"rid\":{rid}");
        }
        let asked = self.sampling(question.sampling_params.unwrap_or_default())?;
        for (name, value) in &asked {
            let _ = write!(chat, ",\"{name}\":{value}");
        }
        chat.push('}');
        Ok(chat)
    }

    /// The defaults with `asked` over them, by their names in a chat completion; null is as good as absent.
    fn sampling(&self, asked: Parameters) -> Result<Parameters, String> {
        let mut merged = self.defaults.clone();
        for (name, value) in asked {
            match (name.as_str(), value.get()) {
                // One text is the answer anyway.
                (_, "null") | ("n", "1") => {}
                ("n", other) => return Err(format!("sampling parameter n is {other}: a judge gives one answer")),
                (name, _) => {
                    merged.insert(chat_name(name)?.to_owned(), value);
                }
            }
        }
        Ok(merged)
    }
}

fn chat_name(name: &str) -> Result<&'static str, String> {
    let renamed = RENAMED.iter().find(|(known, _)| *known == name).map(|(_, chat)| *chat);
    let kept = || KEPT.iter().find(|known| **known == name).copied();
    renamed.or_else(kept).ok_or_else(|| {
        let known: Vec<&str> = RENAMED.iter().map(|(name, _)| *name).chain(KEPT).collect();
        format!(
            "sampling parameter {name:?} cannot be used with messages; known: {}",
            known.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn chat(genrm: &Genrm, body: &str) -> Result<Value, String> {
        let chat = genrm.chat(body.as_bytes())?;
        Ok(serde_json::from_str(&chat).expect("JSON"))
    }

    /// Defaults, the request over them, the names of a chat completion, and the model's template arguments.
    #[test]
    fn a_question_becomes_a_chat_completion() {
        let defaults = r#"{"temperature":0.2,"top_k":-1,"max_response_len":1024}"#;
        let genrm = Genrm::new(defaults, Some(r#"{"enable_thinking":false}"#)).expect("valid");
        let body = r#"{"messages":[{"role":"user","content":"a"}],"sampling_params":{"temperature":0.10,"max_new_tokens":8,
            "top_k":null},"route_key":"k","rid":"r"}"#;
        assert_eq!(
            chat(&genrm, body),
            Ok(json!({
                "messages": [{"role": "user", "content": "a"}], "stream": false, "separate_reasoning": false,
                "chat_template_kwargs": {"enable_thinking": false}, "rid": "r",
                "temperature": 0.1, "top_k": -1, "max_tokens": 8,
            }))
        );
        let plain = Genrm::new("{}", None).expect("valid");
        let expected = json!({"messages": [{}], "stream": false, "separate_reasoning": false});
        for params in [
            "",
            r#","sampling_params":null"#,
            r#","sampling_params":{}"#,
            r#","sampling_params":{"n":1}"#,
        ] {
            assert_eq!(
                chat(&plain, &format!(r#"{{"messages":[{{}}]{params}}}"#)),
                Ok(expected.clone())
            );
        }
    }

    /// The text of messages and numbers is the client's.
    #[test]
    fn the_clients_bytes_survive() {
        let genrm = Genrm::new("{}", None).expect("valid");
        let body = r#"{"messages":[{"b":1,"a":"\ud800 \u00e4"}],"sampling_params":{"temperature":1.0e-1}}"#;
        let chat = genrm.chat(body.as_bytes()).expect("valid");
        assert!(
            chat.starts_with(r#"{"messages":[{"b":1,"a":"\ud800 \u00e4"}],"#),
            "{chat}"
        );
        assert!(chat.ends_with(r#""temperature":1.0e-1}"#), "{chat}");
    }

    /// What a chat completion would ignore is refused by name.
    #[test]
    fn nothing_is_dropped_silently() {
        let genrm = Genrm::new("{}", None).expect("valid");
        for (body, word) in [
            (r#"{"messages":[{}],"stream":true}"#, "stream"),
            (r#"{"messages":[{}],"return_logprob":true}"#, "return_logprob"),
            (
                r#"{"messages":[{}],"sampling_params":{"json_schema":"{}"}}"#,
                "json_schema",
            ),
            (r#"{"messages":[{}],"sampling_params":{"n":2}}"#, "one answer"),
            (r#"{"messages":[{}],"sampling_params":[]}"#, "map"),
            (r#"{"messages":[]}"#, "at least one"),
            (r#"{"messages":"hello"}"#, "list"),
            (r#"{"messages":[{}],"messages":[{}]}"#, "messages"),
        ] {
            let refused = chat(&genrm, body).expect_err(body);
            assert!(refused.contains(word), "{body}: {refused}");
        }
        for (defaults, kwargs) in [(r#"{"tokens":1}"#, None), ("[]", None), ("{}", Some("[]")), ("{", None)] {
            assert!(Genrm::new(defaults, kwargs).is_err(), "{defaults} {kwargs:?}");
        }
    }
}
