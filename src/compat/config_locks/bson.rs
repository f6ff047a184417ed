//! Converts documents to BSON with the fields and types that MongoDB's clients read.

use bson::oid::ObjectId;
use bson::{Bson, DateTime, doc};

use crate::model::{Document, ProcessPing, WallTime};

fn date(wall: WallTime) -> DateTime {
    DateTime::from_millis(i64::try_from(wall.0).unwrap_or(i64::MAX))
}

/// Converts to a document of `config.locks`. The field `lockkeeperToken` has the fencing token, which MongoDB does not
/// have.
#[must_use]
pub fn locks_document(document: &Document) -> bson::Document {
    let mut fields = doc! {
        "_id": document.lock.name.as_str(),
        "state": document.state.number(),
        "process": &*document.process,
        "ts": ObjectId::from_bytes(document.ts.0),
        "when": date(document.when),
        "who": &*document.who,
        "why": &*document.why,
    };
    if let Some(term) = document.term {
        fields.insert("term", Bson::Int64(i64::try_from(term).unwrap_or(i64::MAX)));
    }
    // A token has at most 63 bits.
    fields.insert("lockkeeperToken", Bson::Int64(document.token.as_u64() as i64));
    fields
}

/// Converts to a document of `config.locks` as relaxed extended JSON.
#[must_use]
pub fn locks_json(document: &Document) -> serde_json::Value {
    Bson::Document(locks_document(document)).into_relaxed_extjson()
}

/// Converts to a document of `config.lockpings`.
#[must_use]
pub fn ping_document(ping: &ProcessPing) -> bson::Document {
    doc! { "_id": &*ping.process, "ping": date(ping.ping) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{DocumentId, DocumentState, FencingToken, LockKey, LockName, Namespace};

    /// The fields have the types that drivers expect, and the bytes decode to the same document.
    #[test]
    fn documents_have_the_originals_types() {
        let document = Document {
            lock: LockKey { namespace: Namespace::default(), name: LockName::parse("balancer").expect("legal") },
            state: DocumentState::Held,
            ts: DocumentId([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),
            process: "h:27017:1:2".into(),
            who: "h:27017:1:2:conn7".into(),
            why: "round".into(),
            when: WallTime(1_795_000_000_000),
            term: Some(4),
            token: FencingToken::new(1, 7),
            native: false,
        };
        let fields = locks_document(&document);
        assert_eq!(fields.get_i32("state").expect("a number"), 2);
        assert_eq!(fields.get_object_id("ts").expect("an id").to_hex(), "0102030405060708090a0b0c");
        assert_eq!(fields.get_datetime("when").expect("a date").timestamp_millis(), 1_795_000_000_000);
        assert_eq!(fields.get_i64("term").expect("a number"), 4);
        let keys: Vec<_> = fields.keys().map(String::as_str).collect();
        assert_eq!(keys, ["_id", "state", "process", "ts", "when", "who", "why", "term", "lockkeeperToken"]);
        let bytes = fields.to_vec().expect("BSON");
        assert_eq!(bson::Document::from_reader(&*bytes).expect("BSON"), fields);
        let ping = ping_document(&ProcessPing { process: "h:1".into(), ping: WallTime(5) });
        assert_eq!(ping.get_str("_id").expect("a text"), "h:1");
        assert_eq!(locks_json(&document)["ts"]["$oid"], "0102030405060708090a0b0c");
    }
}
