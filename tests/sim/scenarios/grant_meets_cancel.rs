//! A holder releases just when the wait of the next client ends, repeatedly. A client that received the error *not
//! acquired* must not hold the lock.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use lockkeeper::client::ClientError;
use tokio::time::sleep;

use super::{end_of_scenario, opened};
use crate::clients::TTL;
use crate::invariants::{as_documented, coverage};
use crate::world::World;

const ROUNDS: u64 = 24;
const PATIENCE: Duration = Duration::from_millis(40);

pub(super) fn run(world: &mut World) {
    world.await_leader();
    // Numbers of rounds that ended with a grant, and without one.
    let seen = Rc::new((Cell::new(0), Cell::new(0)));
    let counted = Rc::clone(&seen);
    let rounds = world.add_client(0, |mut caller| async move {
        let connection = caller.connect();
        let one = opened(&caller, || connection.session().ttl(TTL)).await;
        let other = opened(&caller, || connection.session().ttl(TTL)).await;
        for _ in 0..ROUNDS {
            let held = one.lock("red").wait(Duration::from_millis(200)).acquire().await;
            let Ok(held) = held else {
                let what = format!("the lock is not free although no client holds it: {held:?}");
                return caller.run.found(as_documented::NAME, what);
            };
            let release = async {
                sleep(caller.random.ms(28, 46)).await;
                held.release().await.expect("it was held");
            };
            let ((), next) = tokio::join!(release, other.lock("red").wait(PATIENCE).acquire());
            match next {
                Ok(guard) => {
                    counted.0.set(counted.0.get() + 1);
                    guard.release().await.expect("it was held");
                }
                Err(ClientError::NotAcquired { .. }) => counted.1.set(counted.1.get() + 1),
                Err(error) => caller.run.note_error("acquire", &error),
            }
        }
        one.close().await.expect("closed");
        other.close().await.expect("closed");
    });
    world.must("all rounds", Duration::from_secs(20), |_| rounds.is_done());
    let (granted, gave_up) = (seen.0.get(), seen.1.get());
    if granted == 0 || gave_up == 0 {
        world.run.found(coverage::NAME, format!("{granted} grants, and {gave_up} that gave up"));
    }
    end_of_scenario(world);
}
