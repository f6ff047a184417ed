//! The three backends of the suite, which must behave alike.

/// Generates a test for each function and each backend: an embedded leader, an embedded follower, and a gRPC client.
macro_rules! backend_tests {
    (@ $backend:ident: $($name:ident)*) => { mod $backend { $(
        /// Runs the function of this name.
        #[tokio::test]
        async fn $name() {
            let service = crate::$backend().await;
            crate::suite::BACKEND.scope(stringify!($backend), super::$name(service)).await;
        }
    )* } };
    ($($name:ident)*) => {
        backend_tests! { @ leader: $($name)* }
        backend_tests! { @ follower: $($name)* }
        backend_tests! { @ remote: $($name)* }
    };
}

// Tests of the recipes that reproduce other systems: over the leader and over gRPC. The recipes run in the client, so
// a follower adds only its forwarding, which the tests of the service cover.
macro_rules! recipe_tests {
    ($($name:ident)*) => {
        backend_tests! { @ leader: $($name)* }
        backend_tests! { @ remote: $($name)* }
    };
}
