//! Lists of the shortest possible elements, which are counted before memory is allocated for them.

use super::*;

/// Returns a request that repeats the shortest element of a list, inside the fields that lead to the list.
pub(in crate::rpc) fn full_of_elements(path: &[u8], elements: usize) -> Vec<u8> {
    let (list, around) = path.split_last().expect("a field");
    let bytes = [list << 3 | 2, 0].repeat(elements);
    around.iter().rev().fold(bytes, |bytes, field| {
        let mut whole = vec![field << 3 | 2];
        prost::encoding::encode_varint(bytes.len() as u64, &mut whole);
        [whole, bytes].concat()
    })
}

/// Lists of the shortest elements, as long as allowed and as long as a request can be: they are counted before memory
/// is allocated for their elements.
#[tokio::test]
async fn many_short_elements_take_no_more_memory_than_others() {
    let server = Server::new();
    for (name, path) in [("RenewRequest", &[1][..]), ("Command", &[4, 7])] {
        for elements in [limits::LIST_ELEMENTS_MAX, limits::LIST_ELEMENTS_MAX + 1, limits::FRAME_BYTES_MAX / 2 - 8] {
            let bytes = full_of_elements(path, elements);
            assert!(bytes.len() <= limits::FRAME_BYTES_MAX);
            let understood = within_memory_bound(name, bytes.len(), || server.understands(name, &bytes));
            assert!(!understood, "{name}: nothing is in them");
        }
    }
    let request = full_of_elements(&[1], limits::LIST_ELEMENTS_MAX + 1);
    let (_, uncounted) = held(|| pb::RenewRequest::decode(&request.repeat(9)[..]));
    assert!(10 * 9 * request.len() as u64 + 32 * 1024 < uncounted, "{uncounted}: counting them has no use");
    let refused = protobuf::read::<pb::RenewRequest, AsInvalid>(&request[..]).expect_err("one too many");
    assert_eq!(refused.message(), "renewals: at most 100, got 101");
    let invalid = Invalid { field: "renewals".to_owned(), bound: "at most 100".to_owned(), value: "101".to_owned() };
    assert_eq!(ServiceError::from(refused.clone()), ServiceError::Invalid(invalid), "as any other input out of bounds");
}

/// An answer with the longest page that can be requested.
#[test]
fn many_short_records_of_an_answer_are_counted() {
    let answer = full_of_elements(&[10, 1], 50_000);
    let read = within_memory_bound("QueryReply", answer.len(), || understood("QueryReply", &answer));
    assert!(!read, "too many");
    let refused = protobuf::read::<pb::QueryReply, AsInvalid>(&answer[..]).expect_err("too many");
    assert_eq!(refused.message(), "records: at most 1000, got 50000");
}
