//! How a replay goes on: owners finish, turns are granted, queues advance.

use std::cmp::Reverse;

use super::replay::{At, Replay, Turn};

impl Replay<'_> {
    /// Lets everything happen that can. Returns `false` where that takes too many steps.
    pub(super) fn run(&mut self) -> bool {
        (0..self.owners.len()).for_each(|owner| self.finish(owner));
        self.work.extend(0..self.queues.len());
        loop {
            while let Some(queue) = self.work.pop() {
                self.advance(queue);
                if !self.spend(1) {
                    return false;
                }
            }
            if !self.let_pass() {
                return self.steps_left != 0;
            }
        }
    }

    fn finish(&mut self, owner: usize) {
        let mut work = vec![owner];
        while let Some(owner) = work.pop() {
            let owner = &mut self.owners[owner];
            if owner.unmet != 0 || owner.finished {
                continue;
            }
            owner.finished = true;
            for (queue, keeps, barges) in std::mem::take(&mut owner.keeps) {
                self.queues[queue].free += keeps;
                self.queues[queue].free_of_fair += if barges { 0 } else { keeps };
                self.work.push(queue);
            }
            for parent in std::mem::take(&mut owner.parents) {
                self.owners[parent].unmet -= 1;
                work.push(parent);
            }
        }
    }

    pub(super) fn grant(&mut self, at: At) {
        let turn = &mut self.queues[at.queue].turns[at.turn];
        if std::mem::replace(&mut turn.granted, true) {
            return;
        }
        let owner = turn.owner;
        let queues = self.members(at).map(|member| member.queue).collect::<Vec<_>>();
        self.work.extend(queues);
        self.owners[owner].unmet -= 1;
        self.finish(owner);
    }

    /// Grants turns of a queue in their order, as far as there is capacity.
    fn advance(&mut self, number: usize) {
        loop {
            let queue = &self.queues[number];
            let (at, next) = (At { queue: number, turn: queue.next }, queue.next);
            let Some(turn) = queue.turns.get(next) else { return };
            let (barges, fits) = (turn.barges, turn.takes <= queue.free);
            if turn.granted {
                if queue.is_semaphore() && !self.is_whole(at) {
                    return;
                }
                self.pass(at);
            } else if barges {
                self.advance_barging(number);
                if !self.turn(at).granted {
                    return;
                }
            } else if fits {
                self.grant(at);
            } else {
                return;
            }
        }
    }

    /// Goes on to the next turn. What the owner of this one keeps is free once it finishes.
    fn pass(&mut self, at: At) {
        self.steps_left = self.steps_left.saturating_sub(1);
        let queue = &mut self.queues[at.queue];
        queue.next += 1;
        let Turn { owner, keeps, barges, .. } = queue.turns[at.turn];
        let owner = &mut self.owners[owner];
        if keeps == 0 || owner.finished {
            return;
        }
        queue.free -= keeps;
        queue.free_of_fair -= if barges { 0 } else { keeps };
        owner.keeps.push((at.queue, keeps, barges));
    }

    /// Of neighbours that barge, each is granted that would be if it were the first of them.
    fn advance_barging(&mut self, number: usize) {
        let queue = &mut self.queues[number];
        queue.barging_end = queue.barging_end.max(queue.next);
        while let Some(turn) = queue.turns.get(queue.barging_end).filter(|turn| turn.barges) {
            queue.barging.push(Reverse((turn.takes, queue.barging_end)));
            queue.barging_end += 1;
        }
        loop {
            let queue = &mut self.queues[number];
            let Some(Reverse((takes, turn))) = queue.barging.peek().copied() else { return };
            if queue.free_of_fair < takes {
                return;
            }
            queue.barging.pop();
            self.grant(At { queue: number, turn });
        }
    }
}
