// The tasks of a put's round: how pieces are cut into them, and which may run when.
#include "server/local/put_tasks.h"

#include <catch2/catch.hpp>

#include "tiers/base/image.h"
#include "tiers/base/units.h"

namespace kvkeep {
namespace {

// A round of `chunks` chunks, each of which is one piece of `bytes`.
void PlanChunks(PutTasks* tasks, uint32_t chunks, uint64_t bytes) {
  std::vector<PutPiece> pieces;
  for (uint32_t chunk = 0; chunk < chunks; ++chunk) pieces.push_back({.chunk = chunk});
  tasks->Plan(std::move(pieces), [&](const PutPiece&) { return bytes; });
}

// Runs a posted task; returns whether it was the last of the round.
bool Run(PutTasks* tasks, size_t task) {
  const size_t pieces = tasks->PiecesOf(task).size();
  CHECK_FALSE(tasks->End(false).has_value());
  return tasks->NoteDone(pieces);
}

}  // namespace

TEST_CASE("put tasks: small pieces share one, up to a whole piece, and large ones have their own") {
  PutTasks tasks(8);
  CHECK(tasks.count() == 0);
  SECTION("large") {
    PlanChunks(&tasks, 3, kPieceBytes);
    CHECK(tasks.count() == 3);
  }
  SECTION("a third of a piece") {
    PlanChunks(&tasks, 7, kPieceBytes / 3);
    CHECK(tasks.count() == 3);
  }
  SECTION("tiny: not more than 64, or one thread would do all") {
    PlanChunks(&tasks, 130, 1);
    CHECK(tasks.count() == 3);
  }
  SECTION("none") {
    PlanChunks(&tasks, 0, 1);
    CHECK(tasks.count() == 0);
    CHECK(tasks.Post().size() == 0);
  }
}

TEST_CASE("put tasks: one is posted once its pieces are ready, so many at a time") {
  PutTasks tasks(2);
  PlanChunks(&tasks, 4, kPieceBytes);
  CHECK(tasks.Post().size() == 0);
  tasks.NoteReady(1);
  CHECK(tasks.Post().size() == 1);
  CHECK(tasks.Post().size() == 0);
  tasks.NoteReady(4);
  tasks.NoteReady(2);  // overtaken
  CHECK(tasks.Post().size() == 1);
  CHECK(tasks.PiecesOf(1)[0].chunk == 1);  // in any order
  CHECK(tasks.PiecesOf(0)[0].chunk == 0);
  CHECK(tasks.End(true) == 2);  // this thread goes on, in place of the task that ended
  CHECK(tasks.Post().size() == 0);
  CHECK(tasks.PiecesOf(2)[0].chunk == 2);
  CHECK_FALSE(tasks.End(false).has_value());
  const PutTasks::Range last = tasks.Post();
  CHECK(last.first == 3);
  CHECK(last.end == 4);
  CHECK_FALSE(tasks.NoteDone(3));
  CHECK(Run(&tasks, 3));
}

TEST_CASE("put tasks: rounds are counted on, and news of an earlier one changes nothing") {
  PutTasks tasks(8);
  PlanChunks(&tasks, 2, kPieceBytes);
  tasks.NoteReady(2);
  CHECK(tasks.Post().size() == 2);
  CHECK_FALSE(Run(&tasks, 0));
  CHECK(Run(&tasks, 1));
  PlanChunks(&tasks, 2, kPieceBytes);
  tasks.NoteReady(2);
  CHECK(tasks.Post().size() == 0);
  tasks.NoteReady(3);
  CHECK(tasks.Post().size() == 1);
  tasks.NoteReady(PutSource::kAllPieces);
  CHECK(tasks.Post().size() == 1);
  CHECK_FALSE(Run(&tasks, 0));
  CHECK(Run(&tasks, 1));
  PlanChunks(&tasks, 1, kPieceBytes);  // the source reported all before
  CHECK(tasks.Post().size() == 1);
}

TEST_CASE("put tasks: what is ready before the round is planned runs in it") {
  PutTasks tasks(8);
  tasks.NoteReady(1);
  PlanChunks(&tasks, 2, kPieceBytes);
  CHECK(tasks.Post().size() == 1);
}

TEST_CASE("put tasks: the only one may run here, ready or not") {
  PutTasks tasks(8);
  PlanChunks(&tasks, 3, 100);
  REQUIRE(tasks.count() == 1);
  tasks.PostOnly();
  CHECK(tasks.Post().size() == 0);
  CHECK(Run(&tasks, 0));
}

}  // namespace kvkeep
