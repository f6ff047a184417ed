//! The three ways to a lock service, each of which has to behave alike.

/// Runs functions of the module that calls it against a node that leads, one that follows, and over gRPC.
macro_rules! behaviours {
    (@ $way:ident: $($name:ident)*) => { mod $way { $(
        /// The behaviour of this name.
        #[tokio::test]
        async fn $name() {
            let service = crate::$way().await;
            crate::suite::WAY.scope(stringify!($way), super::$name(service)).await;
        }
    )* } };
    ($($name:ident)*) => {
        behaviours! { @ leader: $($name)* }
        behaviours! { @ follower: $($name)* }
        behaviours! { @ remote: $($name)* }
    };
}
