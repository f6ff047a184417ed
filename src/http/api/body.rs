//! Reads requests strictly: the content type, the size, and every field of a body or query.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use futures_util::StreamExt;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use tokio::time::timeout;

use super::problem::Failed;
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
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case(JSON) {
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return Err(Failed::malformed(status, "content-type", JSON, &format!("{kind:?}")));
    }
    let longest = Duration::from_millis(limits::MESSAGE_MS_MAX);
    let Ok(bytes) = timeout(longest, whole(body)).await else {
        let bound = format!("complete within {} ms", limits::MESSAGE_MS_MAX);
        return Err(Failed::malformed(StatusCode::BAD_REQUEST, "body", &bound, "a part of it"));
    };
    let bytes = bytes?;
    let mut reader = serde_json::Deserializer::from_slice(&bytes);
    let object: Object<T> = serde_path_to_error::deserialize(&mut reader)
        .map_err(|error| unreadable("body", &error.path().to_string(), &error.inner().to_string()))?;
    reader.end().map_err(|error| unreadable("body", ".", &error.to_string()))?;
    Ok(object.0)
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
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        if fields.insert(name.to_string(), value.into()).is_some() {
            return Err(Failed::malformed(StatusCode::BAD_REQUEST, &name, "once", "several times"));
        }
    }
    serde_path_to_error::deserialize(serde_json::Value::Object(fields))
        .map_err(|error| unreadable("query", &error.path().to_string(), &error.inner().to_string()))
}

/// For `deserialize_with`: reads a number or a truth value of a query.
pub(super) fn from_text<'de, D: Deserializer<'de>, T: FromStr<Err: fmt::Display>>(
    reader: D,
) -> Result<Option<T>, D::Error> {
    let text = Option::<String>::deserialize(reader)?;
    text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
}

/// For `deserialize_with`: reads a field that may be null but not absent.
pub(super) fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(reader: D) -> Result<Option<T>, D::Error> {
    Option::deserialize(reader)
}

/// The error for a request that cannot be read. If the path names no field, the message may, in backticks.
fn unreadable(whole: &str, path: &str, message: &str) -> Failed {
    let field = match path {
        "." | "?" => message.split('`').nth(1).unwrap_or(whole),
        path => path,
    };
    let message = message.split(" at line ").next().unwrap_or_default();
    let (bound, value) = if message.starts_with("missing field") {
        ("needed for this call, see /v1/openapi.json", "nothing")
    } else if let Some((value, expected)) = message.split_once(", expected ") {
        let value = value.trim_start_matches("invalid type: ").trim_start_matches("invalid value: ");
        (expected, value)
    } else {
        ("as /v1/openapi.json describes it", message)
    };
    Failed::malformed(StatusCode::BAD_REQUEST, field, bound, value)
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse;
    use serde_json::Value;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        lock: String,
        #[serde(default)]
        count: Option<u32>,
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
        let (_, _, detail) = refused(read(r#"{"lock":1}"#).await).await;
        assert_eq!(detail, "lock: a string, got integer `1`");
    }

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
