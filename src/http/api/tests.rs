//! The description of the calls: it is the committed one, and its examples are requests that the calls accept.

mod calls;
pub(super) mod fake;

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;
use utoipa::ToSchema;

use super::body::Object;
use super::*;

/// The committed description. The variable `UPDATE_GOLDENFILES` writes it again.
#[test]
fn the_description_is_the_committed_one() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/openapi.json");
    let text = serde_json::to_string_pretty(&all_calls(Description::default()).document()).expect("JSON") + "\n";
    if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
        std::fs::write(&file, &text).expect("written");
    }
    let committed = std::fs::read_to_string(&file).expect("the committed description");
    assert!(
        committed == text,
        "the calls have changed: run this test with UPDATE_GOLDENFILES=1 and read the difference"
    );
}

/// Collects the words of the calls, and reads the example of each as its request.
#[derive(Default)]
struct Examples(BTreeSet<&'static str>);

impl OfCalls for Examples {
    fn with<C: Call>(self) -> Self {
        self.add::<C>(C::WORD)
    }

    fn streaming<C: StreamCall>(self) -> Self {
        self.add::<C>(C::WORD)
    }

    fn with_both<C: Call + StreamCall>(self) -> Self {
        self.add::<C>(<C as Call>::WORD)
    }
}

impl Examples {
    fn add<C: DeserializeOwned + ToSchema>(mut self, word: &'static str) -> Self {
        let schema = serde_json::to_value(C::schema()).expect("a schema");
        let example: Value = schema["example"].clone();
        let read = serde_json::from_value::<Object<C>>(example.clone());
        assert!(read.is_ok(), "{word}: {:?} of {example}", read.err());
        assert!(self.0.insert(word), "{word} is there twice");
        self
    }
}

/// Each call has another name, and an example that it accepts.
#[test]
fn each_call_has_an_example() {
    assert_eq!(all_calls(Examples::default()).0.len(), 32);
}
