//! Reads requests strictly: the content type, the size, and every field of a body or query.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use futures_util::StreamExt;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, Error as _, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::error::Category;
use serde_path_to_error::{Path, Segment};
use tokio::time::timeout;

use super::problem::Failed;
use crate::http::urlencoded;
use crate::limits;

/// A JSON object. serde would also read a struct from a list of its fields in order.
#[derive(Debug)]
pub(super) struct Object<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Fields(PhantomData))
    }
}

struct Fields<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
    type Value = Object<T>;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Object)
    }
}

/// Reads a body of JSON.
///
/// # Errors
/// It is not `application/json`, too large or too slow, or a field is unknown, missing or of another type.
pub(super) async fn json<T: DeserializeOwned>(headers: &HeaderMap, body: Body) -> Result<T, Failed> {
    let bytes = json_bytes(headers, body).await?;
    let mut reader = serde_json::Deserializer::from_slice(&bytes);
    let object: Object<T> = serde_path_to_error::deserialize(&mut reader)
        .map_err(|error| unreadable("body", &error, serde_json::from_slice(&bytes).ok().as_ref()))?;
    reader.end().map_err(|error| not_json(&error))?;
    Ok(object.0)
}

/// Returns a body that has the type of JSON. The compiler generates this once, and not for each call.
async fn json_bytes(headers: &HeaderMap, body: Body) -> Result<Vec<u8>, Failed> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case(JSON) {
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return Err(Failed::malformed(status, "content-type", JSON, &format!("{kind:?}")));
    }
    let longest = Duration::from_millis(limits::MESSAGE_MS_MAX);
    timeout(longest, whole(body)).await.unwrap_or_else(|_| {
        let bound = format!("complete within {} ms", limits::MESSAGE_MS_MAX);
        Err(Failed::malformed(StatusCode::BAD_REQUEST, "body", &bound, "a part of it"))
    })
}

/// The media type of requests.
pub(super) const JSON: &str = "application/json";

/// Returns all bytes of a body that is not too large.
async fn whole(body: Body) -> Result<Vec<u8>, Failed> {
    let (mut parts, mut bytes) = (body.into_data_stream(), Vec::new());
    while let Some(part) = parts.next().await {
        let broken =
            |error: axum::Error| Failed::malformed(StatusCode::BAD_REQUEST, "body", "complete", &error.to_string());
        let part = part.map_err(broken)?;
        if limits::FRAME_BYTES_MAX < bytes.len() + part.len() {
            let bound = format!("at most {} bytes", limits::FRAME_BYTES_MAX);
            return Err(Failed::malformed(StatusCode::PAYLOAD_TOO_LARGE, "body", &bound, "more"));
        }
        bytes.extend_from_slice(&part);
    }
    Ok(bytes)
}

/// Reads a query. Its values are texts: a field of another type is read with [`from_text`].
///
/// # Errors
/// A field is unknown, missing, repeated or of another type.
pub(super) fn query<T: DeserializeOwned>(query: &str) -> Result<T, Failed> {
    let mut fields = serde_json::Map::new();
    for (name, value) in urlencoded::fields(query.as_bytes())? {
        if fields.insert(name.clone(), value.into()).is_some() {
            return Err(Failed::malformed(StatusCode::BAD_REQUEST, &name, "once", "several times"));
        }
    }
    let fields = Value::Object(fields);
    serde_path_to_error::deserialize(&fields).map_err(|error| unreadable("query", &error, Some(&fields)))
}

/// For `deserialize_with`: reads a number or a truth value of a query.
pub(super) fn from_text<'de, D: Deserializer<'de>, T: FromStr>(reader: D) -> Result<Option<T>, D::Error> {
    let text = Option::<String>::deserialize(reader)?;
    let refused = |text: &str| D::Error::invalid_value(Unexpected::Str(text), &std::any::type_name::<T>());
    text.map(|text| text.parse().map_err(|_| refused(&text))).transpose()
}

/// For `deserialize_with`: reads a field that may be null but not absent.
pub(super) fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(reader: D) -> Result<Option<T>, D::Error> {
    Option::deserialize(reader)
}

/// The error of a JSON reader, and the field at which it occurred.
type ReadError = serde_path_to_error::Error<serde_json::Error>;

/// The error for a text that is no JSON.
fn not_json(error: &serde_json::Error) -> Failed {
    let found = match error.classify() {
        Category::Eof => "JSON that ends too early".to_owned(),
        Category::Io | Category::Syntax | Category::Data => {
            format!("text that is no JSON from line {}, column {}", error.line(), error.column())
        }
    };
    Failed::malformed(StatusCode::BAD_REQUEST, "body", "one JSON object", &found)
}

/// The error for a request that cannot be read, with what the caller sent.
fn unreadable(whole: &str, error: &ReadError, sent: Option<&Value>) -> Failed {
    if !error.inner().is_data() {
        return not_json(error.inner());
    }
    let (path, message) = (error.path().to_string(), error.inner().to_string());
    let message = message.split(" at line ").next().unwrap_or_default();
    let about_a_field = [MISSING, "duplicate field", "unknown field"].iter().any(|words| message.starts_with(words));
    let named = message.split('`').nth(1).filter(|_| about_a_field);
    let field = match (&*path, named) {
        ("." | "?", named) => named.unwrap_or(whole).to_owned(),
        (path, Some(missing)) if message.starts_with(MISSING) => format!("{path}.{missing}"),
        (path, _) => path.to_owned(),
    };
    let (bound, value) = if message.starts_with(MISSING) {
        ("needed for this call, see /v1/openapi.json".to_owned(), "nothing".to_owned())
    } else if message.starts_with("duplicate field") {
        ("once".to_owned(), "several times".to_owned())
    } else if message.starts_with("unknown field") {
        let others = message.split_once(", expected ").map_or("none", |(_, others)| others);
        (format!("absent, because the fields here are {}", others.trim_start_matches("one of ")), "a value".to_owned())
    } else {
        let bound = message.split_once(", expected ").map(|(_, expected)| in_words(expected, message));
        let sent = sent.and_then(|sent| value_at(sent, error.path()));
        let bound = bound.unwrap_or_else(|| "as /v1/openapi.json describes it".to_owned());
        (bound, sent.map_or_else(|| "another value".to_owned(), |sent| shown(&field, sent)))
    };
    Failed::malformed(StatusCode::BAD_REQUEST, &field, &bound, &value)
}

const MISSING: &str = "missing field";

/// Names a type without the words of Rust. The bounds of a field are often narrower, and are checked later.
fn in_words(expected: &str, message: &str) -> String {
    match expected {
        "u64" | "u32" if message.starts_with("invalid type") => "a whole number".to_owned(),
        "u64" => "a whole number, 0 or more".to_owned(),
        "u32" => format!("a whole number from 0 to {}", u32::MAX),
        "bool" | "a boolean" => "true or false".to_owned(),
        "a sequence" => "a list".to_owned(),
        other => other.to_owned(),
    }
}

/// Returns the value that the caller sent for the field of this path.
fn value_at<'a>(sent: &'a Value, path: &Path) -> Option<&'a Value> {
    path.iter().try_fold(sent, |value, segment| match segment {
        Segment::Seq { index } => value.get(index),
        Segment::Map { key } => value.get(key),
        Segment::Enum { .. } => Some(value),
        Segment::Unknown => None,
    })
}

/// Shows a value that was refused; of a secret only its kind.
fn shown(field: &str, value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::Number(_) if field.ends_with("handle") => "a number".to_owned(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        lock: String,
        #[serde(default)]
        count: Option<u32>,
        #[serde(default, rename = "lease_ms")]
        _lease_ms: Option<u64>,
        #[serde(default, rename = "handle")]
        _handle: Option<String>,
        #[serde(default)]
        parent: Option<Object<Inner>>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        owner: String,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Asked {
        #[serde(default, deserialize_with = "from_text")]
        rows: Option<u32>,
        #[serde(default, deserialize_with = "from_text")]
        #[expect(dead_code, reason = "only its errors are read")]
        stale: Option<bool>,
    }

    fn headers(kind: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::CONTENT_TYPE, kind.parse().expect("a value"))])
    }

    /// Returns the status of the error, its field, and its detail.
    async fn refused<T: fmt::Debug>(read: Result<T, Failed>) -> (u16, String, String) {
        let answer = read.expect_err("refused").into_response();
        let status = answer.status().as_u16();
        let bytes = whole(answer.into_body()).await.expect("a body");
        let problem: Value = serde_json::from_slice(&bytes).expect("JSON");
        let text = |name: &str| problem[name].as_str().unwrap_or_default().to_owned();
        assert_eq!(problem["status"], status);
        (status, text("field"), text("detail"))
    }

    /// Each field is read, also below others, and every other body is refused with the name of the field.
    #[tokio::test]
    async fn bodies_are_read_strictly() {
        let read = async |body: &str| json::<Sample>(&headers(JSON), Body::from(body.to_owned())).await;
        let sample = read(r#" {"lock":"a","count":4,"parent":{"owner":"o"}} "#).await.expect("read");
        assert_eq!((&*sample.lock, sample.count), ("a", Some(4)));
        assert_eq!(sample.parent.map(|Object(inner)| inner.owner).as_deref(), Some("o"));
        for (body, field) in [
            (r#"{"lock":"a","lok":"b"}"#, "lok"),
            (r#"{"lock":"a","ttl":1}"#, "ttl"),
            (r#"{"lock":1}"#, "lock"),
            (r#"{"count":1}"#, "lock"),
            (r#"{"lock":"a","count":-1}"#, "count"),
            (r#"{"lock":"a","count":1.5}"#, "count"),
            (r#"{"lock":"a","count":4294967296}"#, "count"),
            (r#"{"lock":"a","lock":"b"}"#, "lock"),
            (r#"{"lock":"a","parent":{"owner":1}}"#, "parent.owner"),
            (r#"{"lock":"a","parent":{"owner":"o","x":1}}"#, "parent.x"),
            (r#"{"lock":"a","parent":["o"]}"#, "parent"),
            (r#"["a",4]"#, "body"),
            (r#"{"lock":"a"} {}"#, "body"),
            (r#"{"lock":"a""#, "body"),
            ("", "body"),
        ] {
            let (status, named, detail) = refused(read(body).await).await;
            assert_eq!((status, &*named), (400, field), "{body}: {detail}");
        }
    }

    /// The error names the bound in plain words, and the value as the caller sent it, but no secret.
    #[tokio::test]
    async fn an_error_shows_the_bound_and_the_value() {
        let read = async |body: &str| json::<Sample>(&headers(JSON), Body::from(body.to_owned())).await;
        let (whole, count) = ("count: a whole number, got", "count: a whole number from 0 to 4294967295, got");
        for (body, expected) in [
            (r#"{"lock":1}"#, "lock: a string, got 1".to_owned()),
            (r#"{"lock":null}"#, "lock: a string, got null".to_owned()),
            (r#"{"lock":["a"]}"#, "lock: a string, got a list".to_owned()),
            (r#"{"lock":"a","count":"4"}"#, format!("{whole} \"4\"")),
            (r#"{"lock":"a","count":-1}"#, format!("{count} -1")),
            (r#"{"lock":"a","count":1.5}"#, format!("{whole} 1.5")),
            (r#"{"lock":"a","parent":{}}"#, format!("parent.owner: {NEEDED}, got nothing")),
            (r#"{"lock":"a","parent":{"owner":true}}"#, "parent.owner: a string, got true".to_owned()),
            (r#"{"lock":"a","handle":7}"#, "handle: a string, got a number".to_owned()),
            (r#"{"lock":"a","lock":"b"}"#, "lock: once, got several times".to_owned()),
            (r#"{"lock":"a","count":4294967296}"#, format!("{count} 4294967296")),
            (r#"{"lock":"a","lease_ms":-1}"#, "lease_ms: a whole number, 0 or more, got -1".to_owned()),
            (r#"{"lock":"a","lease_ms":"10s"}"#, "lease_ms: a whole number, got \"10s\"".to_owned()),
            (r#"{"lock":"a","handel":"s"}"#, format!("handel: {FIELDS}, got a value")),
            (r#"{"lock":"a","lease":1}"#, format!("lease: {FIELDS}, got a value")),
            (r#"{"lock":"a""#, "body: one JSON object, got JSON that ends too early".to_owned()),
            (r#"{"lock":a}"#, "body: one JSON object, got text that is no JSON from line 1, column 9".to_owned()),
            ("[]", "body: an object, got a list".to_owned()),
            ("1", "body: an object, got 1".to_owned()),
            ("true", "body: an object, got true".to_owned()),
        ] {
            assert_eq!(refused(read(body).await).await.2, expected, "{body}");
        }
        for (text, expected) in [
            ("rows=-1", "rows: a whole number from 0 to 4294967295, got \"-1\""),
            ("stale=yes", "stale: true or false, got \"yes\""),
            ("rows=%ff", "rows: in UTF-8, got %ff"),
        ] {
            assert_eq!(refused(query::<Asked>(text)).await.2, expected, "{text}");
        }
    }

    const NEEDED: &str = "needed for this call, see /v1/openapi.json";
    const FIELDS: &str = "absent, because the fields here are `lock`, `count`, `lease_ms`, `handle`, `parent`";

    /// Only JSON is read, and only up to the size of a request.
    #[tokio::test]
    async fn type_and_size_are_checked() {
        for kind in ["application/json", "Application/JSON; charset=utf-8"] {
            json::<Sample>(&headers(kind), Body::from(r#"{"lock":"a"}"#)).await.expect(kind);
        }
        for kind in ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", "x"] {
            let read = json::<Sample>(&headers(kind), Body::from(r#"{"lock":"a"}"#)).await;
            assert_eq!(refused(read).await.0, 415, "{kind}");
        }
        let long = |bytes: usize| format!("{{\"lock\":\"a\"{}}}", " ".repeat(bytes - 12));
        let read = async |bytes| json::<Sample>(&headers(JSON), Body::from(long(bytes))).await;
        read(limits::FRAME_BYTES_MAX).await.expect("the largest");
        assert_eq!(refused(read(limits::FRAME_BYTES_MAX + 1).await).await.0, 413);
    }

    /// A body that stops to arrive is refused after a time.
    #[tokio::test(start_paused = true)]
    async fn a_slow_body_is_refused() {
        let parts = futures_util::stream::iter([Ok::<_, std::io::Error>(r#"{"lock""#)]);
        let read =
            json::<Sample>(&headers(JSON), Body::from_stream(parts.chain(futures_util::stream::pending()))).await;
        assert_eq!(refused(read).await.0, 400);
    }

    /// The values of a query are converted, and every other query is refused with the name of the field.
    #[tokio::test]
    async fn queries_are_read_strictly() {
        assert_eq!(query::<Asked>("rows=7").expect("read").rows, Some(7));
        assert_eq!(query::<Asked>("").expect("read").rows, None);
        for (text, field) in [("rows=x", "rows"), ("rows=1&rows=2", "rows"), ("row=1", "row"), ("rows=", "rows")] {
            let (status, named, detail) = refused(query::<Asked>(text)).await;
            assert_eq!((status, &*named), (400, field), "{text}: {detail}");
        }
    }
}
