//! Tests that the manual's page on limits has the values of the constants.

use super::*;

const PAGE: &str = include_str!("../manual/limits.md");

/// Names of constants with their values.
macro_rules! constants {
    ($($name:ident),* $(,)?) => { [$((stringify!($name), u128::try_from($name).expect("a bound"))),*] };
}

/// Returns a value of the page as a number of bytes, milliseconds or items.
fn value(text: &str) -> u128 {
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    let number: u128 = number.replace(',', "").parse().expect("a number");
    let factor = match unit {
        "" | "bytes" | "ms" => 1,
        "s" => 1_000,
        "min" => 60_000,
        "h" => 3_600_000,
        "d" => 24 * 3_600_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        other => panic!("{other} is no unit of this page"),
    };
    number * factor
}

/// Whether the name of a constant has the unit of this text.
fn fits(name: &str, text: &str) -> bool {
    let has = |part: &str| name.split('_').any(|word| word == part);
    match text.split_once(' ').map(|(_, unit)| unit) {
        None => !has("MS") && !has("BYTES"),
        Some("bytes" | "KiB" | "MiB") => has("BYTES"),
        Some(_) => has("MS"),
    }
}

/// The limits of messages, calls and files.
fn of_wire_and_disk() -> Vec<(&'static str, u128)> {
    constants![
        FRAME_BYTES_MAX,
        LIST_ELEMENTS_MAX,
        ANSWER_BYTES_MAX,
        PEER_MESSAGE_BYTES_MAX,
        COMMANDS_AN_ENTRY_MAX,
        RENEWALS_AN_ENTRY_MAX,
        ENTRY_BYTES_MAX,
        PROPOSALS_WAITING_MAX,
        PROPOSALS_SHARED_MAX,
        PROPOSALS_OF_A_SOURCE_MAX,
        RENEWALS_OF_A_SESSION_MAX,
        WRONG_HANDLES_A_SECOND,
        WATCHERS_A_PRINCIPAL_MAX,
        WATCHERS_A_NODE_MAX,
        WATCH_LEADERLESS_MS_MAX,
        WATCH_ELECTIONS_MAX,
        HEALTH_WATCHES_MAX,
        AUDITED_ACTS_A_SECOND,
        AUDITED_ASKS_A_SECOND,
        BACKUPS_A_MINUTE_MAX,
        UNARY_CLAIMS_MAX,
        FORWARDED_WAITS_MAX,
        UNBOUND_STREAM_MS_MAX,
        MESSAGE_MS_MAX,
        HALF_MESSAGES_BYTES_MAX,
        HALF_MESSAGES_OF_A_CONNECTION_BYTES_MAX,
        HALF_MESSAGES_SHARED_BYTES_MAX,
        HALF_MESSAGES_FEW_BYTES_MAX,
        SILENT_CALL_BYTES,
        ENDPOINTS_MAX,
        COMMANDS_A_SECOND_MAX,
        SNAPSHOT_LOG_BYTES_MIN,
    ]
    .to_vec()
}

/// The limits of ports and their connections.
fn of_connections() -> Vec<(&'static str, u128)> {
    constants![
        CLIENT_CONNECTIONS_MAX,
        CLIENT_CONNECTIONS_AN_ADDRESS_MAX,
        CLIENT_UNPROVEN_MAX,
        CLIENT_UNPROVEN_AN_ADDRESS_MAX,
        CLIENT_FIRST_REQUEST_MS_MAX,
        STREAMS_A_CONNECTION_MAX,
        PEER_CONNECTIONS_MAX,
        PEER_CONNECTIONS_AN_ADDRESS_MAX,
        PEER_UNPROVEN_MAX,
        PEER_UNPROVEN_AN_ADDRESS_MAX,
        PEER_FIRST_REQUEST_MS_MAX,
        PEER_STREAMS_A_CONNECTION_MAX,
        HTTP_CONNECTIONS_MAX,
        HTTP_CONNECTIONS_AN_ADDRESS_MAX,
        HTTP_UNPROVEN_MAX,
        HTTP_UNPROVEN_AN_ADDRESS_MAX,
        HTTP_FIRST_REQUEST_MS_MAX,
        HTTP_IDLE_MS_MAX,
        HTTP_HEADER_BYTES_MAX,
        HTTP_HEADERS_MAX,
        HTTP_POLLS_MAX,
        HTTP_POLL_MS_DEFAULT_MAX,
        HTTP_POLL_MS_MAX,
        CLAIM_LEASE_MS_MAX,
        STREAM_COMMENT_MS,
        HTTP_SILENCE_MS_MAX,
        EVENTS_WAITING_MAX,
        HOLD_MS_DEFAULT,
        HOLD_MS_MAX,
        SCREEN_ROWS,
        LIVE_SCREENS_MAX,
        SIGN_IN_MS_MAX,
        SIGN_IN_ACTS_MS_MAX,
        SIGN_IN_TRIES_MAX,
        SIGN_INS_MAX,
        SIGN_INS_OF_A_TOKEN_MAX,
    ]
    .to_vec()
}

/// Each row of the page has the value of its constant, in the right unit. Each constant below has a row.
#[test]
fn the_page_has_the_values() {
    let constants = constants![
        NAMESPACE_BYTES_MAX,
        LOCK_NAME_BYTES_MAX,
        HANDLE_BYTES_MAX,
        OWNER_BYTES_MAX,
        METADATA_BYTES_MAX,
        REASON_BYTES_MAX,
        LOCK_VALUE_BYTES_MAX,
        TTL_MS_MAX_DEFAULT,
        TTL_MS_MAX,
        LAN_TTL_MS_MIN,
        FAST_TTL_MS_MIN,
        WAN_TTL_MS_MIN,
        TTL_MS_DEFAULT_MIN,
        LEASE_MS_MIN,
        LOCK_DELAY_MS_MAX,
        AT_LEAST_MS_MAX,
        AT_MOST_MS_MAX,
        TRY_BEHIND_CACHED_MS,
        CACHED_IDLE_MS_MAX,
        PATIENCE_MS_MAX,
        REQUEST_MS_DEFAULT,
        TOMBSTONE_MS,
        SESSIONLESS_MEMORY_MS,
        MEMBERS_MAX,
        SESSIONS_A_NAMESPACE_MAX,
        LOCKS_A_NAMESPACE_MAX,
        WAITERS_A_NAMESPACE_MAX,
        TAKES_A_NAMESPACE_MAX,
        WAITERS_A_LOCK_MAX,
        HOLDERS_A_LOCK_MAX,
        LOCKS_A_SESSION_MAX,
        CACHED_IDLE_MAX,
        LOCKS_A_SET_MAX,
        PERMITS_MAX,
        HOLD_DEPTH_MAX,
        UNLOCKS_OF_MANY_MAX,
        UNLOCKS_OF_MANY_ALL_MAX,
        UNLOCKS_LOOKED_MAX,
        REQUESTS_REMEMBERED_MAX,
        PAGE_ROWS_MAX,
        LISTED_MAX,
        EVENTS_KEPT_MAX,
        HISTORY_RECORDS_MAX,
        HISTORY_BYTES_MAX,
        HISTORY_BYTES_ALL_MAX,
        EPOCH_MAX,
    ];
    let constants = [constants.to_vec(), of_wire_and_disk(), of_connections()].concat();
    let rows = PAGE.lines().filter(|line| line.ends_with("` |")).map(|line| line.split(" | ").collect::<Vec<_>>());
    let mut found = Vec::new();
    for row in rows {
        let [_, text, name] = row[..] else { panic!("not a row of three: {row:?}") };
        let name = name.trim_matches(['`', ' ', '|']);
        let (_, expected) =
            constants.iter().find(|(of, _)| *of == name).unwrap_or_else(|| panic!("no such constant: {name}"));
        assert_eq!(value(text), *expected, "{name}");
        assert!(fits(name, text), "{name}: {text}");
        found.push(name);
    }
    assert_eq!(found, constants.iter().map(|(name, _)| *name).collect::<Vec<_>>());
}
