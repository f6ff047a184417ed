//! Describes the calls as OpenAPI 3.1.

use std::collections::BTreeMap;

use axum::http::Method;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;
use utoipa::openapi::{RefOr, Schema};

use super::body::JSON;
use super::call::Call;
use super::problem::{Ended, PROBLEM, Problem};
use super::stream::{LINES, OfCalls, SSE, StreamCall};
use crate::service::ErrorCode;

/// Errors that every call may return.
const OF_ALL: &[ErrorCode] = &[
    ErrorCode::Invalid,
    ErrorCode::Unauthenticated,
    ErrorCode::NotPermitted,
    ErrorCode::Overloaded,
    ErrorCode::NoLeader,
    ErrorCode::Stopping,
    ErrorCode::Unknown,
    ErrorCode::Internal,
];

/// The calls so far, and the types that they name.
#[derive(Default)]
pub(super) struct Description {
    paths: Map<String, Value>,
    schemas: Map<String, Value>,
}

impl OfCalls for Description {
    fn with<C: Call>(mut self) -> Self {
        let content = json!({JSON: {"schema": self.named::<C::Answer>()}});
        let path = C::path();
        let call = Described { method: C::METHOD, word: C::WORD, path, statuses: C::STATUSES, errors: C::ERRORS };
        self.with_call(&Fields::of::<C>(), &call, &content)
    }

    fn streaming<C: StreamCall>(mut self) -> Self {
        let content = self.events::<C>();
        let path = C::path();
        let call = Described { method: C::METHOD, word: C::WORD, path, statuses: &[200], errors: C::ERRORS };
        self.with_call(&Fields::of::<C>(), &call, &content)
    }

    fn with_both<C: Call + StreamCall>(mut self) -> Self {
        let mut content = self.events::<C>();
        content[JSON] = json!({"schema": self.named::<<C as Call>::Answer>()});
        let path = <C as Call>::path();
        let (word, errors) = (<C as Call>::WORD, <C as Call>::ERRORS);
        let call = Described { method: <C as Call>::METHOD, word, path, statuses: <C as Call>::STATUSES, errors };
        self.with_call(&Fields::of::<C>(), &call, &content)
    }
}

/// What a call says about itself besides its fields.
struct Described {
    method: Method,
    word: &'static str,
    path: String,
    statuses: &'static [u16],
    errors: &'static [ErrorCode],
}

/// A type as OpenAPI describes it. Everything else here works on this, so that the compiler generates it once, and not
/// for each type.
struct Fields {
    name: String,
    schema: RefOr<Schema>,
    /// The types to which the type refers.
    referred: Vec<(String, RefOr<Schema>)>,
}

impl Fields {
    fn of<T: ToSchema>() -> Self {
        let mut referred = Vec::new();
        T::schemas(&mut referred);
        Self { name: T::name().into_owned(), schema: T::schema(), referred }
    }
}

impl Description {
    /// The content of a stream: one event, or the error that ends it.
    fn events<C: StreamCall>(&mut self) -> Value {
        let event = json!({"oneOf": [self.named::<C::Event>(), self.named::<Ended>()]});
        let data = json!({"type": "string", "contentMediaType": "application/json", "contentSchema": event});
        let parts = json!({"id": {"type": "string"}, "event": {"type": "string"}, "data": data});
        let sent = json!({"type": "object", "properties": parts, "required": ["event", "data"]});
        json!({SSE: {"schema": sent}, LINES: {"schema": event}})
    }

    /// Adds a call with these fields and answers of this content.
    fn with_call(mut self, fields: &Fields, call: &Described, content: &Value) -> Self {
        let asked = value(&fields.schema);
        let description = asked["description"].as_str().unwrap_or_default().to_owned();
        let summary = description.split(['.', ':', ';']).next().unwrap_or_default();
        let mut operation = json!({
            "operationId": call.word,
            "tags": [tag(&call.path)],
            "summary": summary,
            "description": description,
            "parameters": of_path(&call.path),
            "responses": responses(call, content),
        });
        if call.method == Method::POST {
            let body = self.reference(fields);
            operation["requestBody"] = json!({"required": true, "content": {JSON: {"schema": body}}});
        } else if let Some(parameters) = operation["parameters"].as_array_mut() {
            parameters.extend(of_query(&asked));
        }
        let method = call.method.as_str().to_lowercase();
        self.paths.entry(call.path.clone()).or_insert_with(|| json!({}))[method] = operation;
        self.add_referred(fields);
        self
    }

    /// Returns the whole document.
    pub(super) fn document(mut self) -> Value {
        self.named::<Problem>();
        json!({
            "openapi": "3.1.0",
            "info": {
                "title": "lockkeeper",
                "version": env!("CARGO_PKG_VERSION"),
                "description": "A replicated lock service. Any node answers any call. Tokens, positions, sequences and \
                                ids are texts; fields that end in `_ms` are durations or log times in milliseconds.",
                "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
            },
            "servers": [{"url": "/"}],
            "tags": [
                {"name": "locks", "description": "Locks: acquired, kept, released, read, and managed by operators."},
                {"name": "sessions", "description": "Sessions: opened, renewed, closed, read, and ended by operators."},
                {"name": "cluster", "description": "The cluster, its errors, and this description."},
            ],
            "security": [{}, {"bearer": []}],
            "paths": self.paths,
            "components": {
                "schemas": self.schemas,
                "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            },
        })
    }

    /// Adds a type by its name, and returns a reference to it.
    fn named<T: ToSchema>(&mut self) -> Value {
        self.reference(&Fields::of::<T>())
    }

    fn reference(&mut self, fields: &Fields) -> Value {
        let Fields { name, schema, .. } = fields;
        self.add(name, value(schema));
        self.add_referred(fields);
        json!({"$ref": format!("#/components/schemas/{name}")})
    }

    fn add_referred(&mut self, fields: &Fields) {
        for (name, schema) in &fields.referred {
            self.add(name, value(schema));
        }
    }

    fn add(&mut self, name: &str, schema: Value) {
        let known = self.schemas.insert(name.to_owned(), schema.clone());
        debug_assert!(known.is_none_or(|known| known == schema), "two types have the name of {schema}");
    }
}

/// Returns a schema as JSON. Formats are replaced by the exact range, because those of utoipa are signed.
fn value(schema: &RefOr<Schema>) -> Value {
    let mut value = serde_json::to_value(schema).unwrap_or_default();
    set_ranges(&mut value);
    value
}

fn set_ranges(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            let largest = match fields.get("format").and_then(Value::as_str) {
                Some("int32") => Some(u64::from(u32::MAX)),
                Some("int64") => Some(u64::MAX),
                Some(_) | None => None,
            };
            if let Some(largest) = largest {
                fields.remove("format");
                fields.insert("maximum".to_owned(), largest.into());
            }
            fields.values_mut().for_each(set_ranges);
        }
        Value::Array(parts) => parts.iter_mut().for_each(set_ranges),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The group of a path's call.
fn tag(path: &str) -> &'static str {
    match (path.contains("/ns/"), path.contains("/sessions") || path.ends_with("/renew")) {
        (true, false) => "locks",
        (true, true) => "sessions",
        (false, _) => "cluster",
    }
}

/// The parameters that a path has.
fn of_path(path: &str) -> Vec<Value> {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let described = |name: &str| match name {
        "namespace" => {
            ("Namespace of the locks; `default` unless the operator uses several.", "default", "^[a-z0-9._-]{1,64}$")
        }
        _ => ("Public id of the session.", "41", "^[0-9]{1,19}$"),
    };
    let parameter = |name: &str| {
        let (description, example, pattern) = described(name);
        let schema = json!({"type": "string", "pattern": pattern});
        json!({"name": name, "in": "path", "required": true, "description": description, "schema": schema, "example": example})
    };
    names.map(parameter).collect()
}

/// The fields of a query as parameters.
fn of_query(asked: &Value) -> Vec<Value> {
    let required: Vec<_> = asked["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let fields = asked["properties"].as_object().into_iter().flatten();
    let parameter = |(name, schema): (&String, &Value)| {
        let mut schema = schema.clone();
        let description = schema["description"].take();
        let mut parameter = json!({"name": name, "in": "query", "required": required.contains(&name.as_str())});
        if let Some(schema) = schema.as_object_mut() {
            schema.remove("description");
            // A query has no null: the parameter is left out.
            if let Some(kinds) = schema.get("type").and_then(Value::as_array) {
                let kind = kinds.iter().find(|kind| *kind != "null").cloned();
                schema.insert("type".to_owned(), kind.unwrap_or_default());
            }
        }
        if description.is_string() {
            parameter["description"] = description;
        }
        if let Some(example) = asked["example"].get(name) {
            parameter["example"] = of_type(&schema, example);
        }
        if let Some(only) =
            schema["oneOf"].as_array().and_then(|kinds| kinds.iter().find(|kind| kind["type"] != "null"))
        {
            schema = only.clone();
        }
        parameter["schema"] = schema;
        parameter
    };
    fields.map(parameter).collect()
}

/// Returns an example with the type of its schema. The example of a query has texts.
fn of_type(schema: &Value, example: &Value) -> Value {
    let typed = example.as_str().filter(|_| schema["type"] != "string");
    typed.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_else(|| example.clone())
}

/// The answers of a call, and its errors by their statuses.
fn responses(call: &Described, content: &Value) -> Value {
    let mut responses = Map::new();
    for status in call.statuses {
        let description = match status {
            201 => "It is open.",
            202 => "It waits in the queue: send the same body again, with `request` and `handle`.",
            _ => "It is done, or this is the answer.",
        };
        responses.insert(status.to_string(), json!({"description": description, "content": content}));
    }
    let mut errors = BTreeMap::<u16, Vec<String>>::new();
    let all = OF_ALL.iter().chain(call.errors);
    for row in all.map(|code| code.row()) {
        errors.entry(row.http).or_default().push(format!("`{}`: {}", row.text, row.title));
    }
    let posted: &[u16] = if call.method == Method::POST { &[413, 415] } else { &[] };
    let exact =
        [404, 405, 421, 431].iter().filter(|status| call.path.contains("{id}") || **status != 404).chain(posted);
    for status in exact {
        let invalid = ErrorCode::Invalid.row();
        errors.entry(*status).or_default().push(format!("`{}`: {}", invalid.text, invalid.title));
    }
    for (status, words) in errors {
        let content = json!({PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}});
        responses.insert(status.to_string(), json!({"description": words.join("\n"), "content": content}));
    }
    Value::Object(responses)
}
