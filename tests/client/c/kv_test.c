// The planner from C: numbers alone, no daemon and no driver. What a plan is worth is shown in
// tests/gpu/kv_planner_test.cc; here, that the ABI says the same and refuses what is wrong.
#include <kvkeep_kv.h>

#include "tests/client/c/check.h"

static kvkeep_error error;
static const kvkeep_gpu_run tensor = {7, 4096, 1 << 20};
static const uint32_t table[] = {3, 1, 2};

// Two layers of [2, blocks, 4 tokens, 2 heads, 8 bytes]: 64 bytes a block of K, or of V.
static kvkeep_kv_layout small(void) {
  return (kvkeep_kv_layout){.size = sizeof(kvkeep_kv_layout),
                            .format = KVKEEP_KV_ONE_TENSOR,
                            .layers = 2,
                            .blocks = 4,
                            .block_tokens = 4,
                            .heads = 2,
                            .head_bytes = 8,
                            .tensors = &tensor,
                            .tensor_count = 1};
}

static kvkeep_kv_planner* planner_of(kvkeep_kv_layout layout) {
  kvkeep_kv_planner* planner = NULL;
  CHECK_CODE(kvkeep_kv_planner_create(&layout, &planner, &error), KVKEEP_OK, &error);
  CHECK(planner != NULL);
  return planner;
}

static int same(kvkeep_gpu_run run, uint64_t offset, uint64_t bytes) {
  return run.region == tensor.region && run.offset == tensor.offset + offset && run.bytes == bytes;
}

// All tokens of the table's first block; `runs` has room for 16.
static kvkeep_kv_plan_request first_block(kvkeep_gpu_run* runs) {
  return (kvkeep_kv_plan_request){.size = sizeof(kvkeep_kv_plan_request),
                                  .block_table = table,
                                  .block_count = 1,
                                  .tokens = 4,
                                  .runs = runs,
                                  .room = 16};
}

static void a_table_becomes_runs(void) {
  kvkeep_kv_planner* planner = planner_of(small());
  CHECK(kvkeep_kv_planner_bytes_per_token(planner) == 2 * 2 * 2 * 8);
  kvkeep_gpu_run runs[16];
  kvkeep_kv_plan_request request = {.size = sizeof request,
                                    .block_table = table,
                                    .block_count = 3,
                                    .first_token = 4,
                                    .tokens = 8,
                                    .runs = runs,
                                    .room = 16};
  uint64_t count = 77;
  CHECK_CODE(kvkeep_kv_plan(planner, &request, &count, &error), KVKEEP_OK, &error);
  // Blocks 1 and 2 are neighbours: a run for K and for V of each layer, 4 blocks of 64 bytes apart.
  CHECK(count == 4);
  for (uint64_t i = 0; i < count; ++i) CHECK(same(runs[i], i * 4 * 64 + 64, 128));
  request.first_token = 0;
  request.room = 7;
  CHECK_CODE(kvkeep_kv_plan(planner, &request, &count, &error), KVKEEP_OUT_OF_RANGE, &error);
  CHECK(count == 8 && strstr(error.message, "room") != NULL);
  request.room = 0;
  request.runs = NULL;
  CHECK_CODE(kvkeep_kv_plan(planner, &request, &count, &error), KVKEEP_OUT_OF_RANGE, &error);
  kvkeep_kv_planner_free(planner);
}

static void steps_tell_of_gaps(void) {
  const uint64_t steps[] = {4096, 2048, 128, 16, 8};  // a block of 64 bytes each 128
  kvkeep_kv_layout layout = small();
  layout.strides = steps;
  kvkeep_kv_planner* planner = planner_of(layout);
  kvkeep_gpu_run runs[16];
  const kvkeep_kv_plan_request request = first_block(runs);
  uint64_t count = 0;
  CHECK_CODE(kvkeep_kv_plan(planner, &request, &count, &error), KVKEEP_OK, &error);
  CHECK(count == 4 && same(runs[0], 3 * 128, 64) && same(runs[1], 2048 + 3 * 128, 64));
  CHECK(same(runs[3], 4096 + 2048 + 3 * 128, 64));
  kvkeep_kv_planner_free(planner);
}

static void the_canonical_order_is_the_same_for_every_layout(void) {
  kvkeep_kv_layout layout = small();
  layout.order = KVKEEP_KV_ORDER_CANONICAL;
  kvkeep_kv_planner* planner = planner_of(layout);
  kvkeep_gpu_run runs[16];
  const kvkeep_kv_plan_request request = first_block(runs);
  uint64_t count = 0;
  CHECK_CODE(kvkeep_kv_plan(planner, &request, &count, &error), KVKEEP_OK, &error);
  // K of both layers before V of both.
  CHECK(count == 4 && same(runs[0], 192, 64) && same(runs[1], 2 * 256 + 192, 64));
  CHECK(same(runs[2], 256 + 192, 64) && same(runs[3], 3 * 256 + 192, 64));
  kvkeep_kv_planner_free(planner);
}

static void refuse(kvkeep_kv_layout layout, const char* words) {
  kvkeep_kv_planner* planner = (kvkeep_kv_planner*)&error;
  CHECK_CODE(kvkeep_kv_planner_create(&layout, &planner, &error), KVKEEP_INVALID_ARGUMENT, &error);
  CHECK(planner == NULL);
  if (strstr(error.message, words) == NULL) check_failed(__FILE__, __LINE__, words, &error);
}

static void wrong_layouts_are_named(void) {
  kvkeep_kv_layout layout = small();
  layout.format = 10;
  refuse(layout, "format");
  layout = small();
  layout.order = 2;
  refuse(layout, "order");
  layout = small();
  layout.tensors = NULL;
  refuse(layout, "tensors");
  layout = small();
  layout.tensor_count = 0;
  refuse(layout, "tensor_count");
  layout = small();
  layout.format = KVKEEP_KV_SPLIT;
  refuse(layout, "1 tensors where its axes take 4");
  layout = small();
  layout.blocks = 1u << 20;
  refuse(layout, "tensors[0]");
  layout = small();
  layout.size = 8;
  refuse(layout, "layout.size");
  layout = small();
  CHECK_CODE(kvkeep_kv_planner_create(&layout, NULL, &error), KVKEEP_INVALID_ARGUMENT, &error);
}

static void wrong_plans_are_named(void) {
  kvkeep_kv_planner* planner = planner_of(small());
  kvkeep_kv_plan_request request = {
      .size = sizeof request, .block_table = table, .block_count = 3, .tokens = 13};
  uint64_t count = 77;
  CHECK_CODE(kvkeep_kv_plan(planner, &request, &count, &error), KVKEEP_INVALID_ARGUMENT, &error);
  CHECK(count == 0 && strstr(error.message, "tokens") != NULL);
  const uint32_t beyond[] = {4};
  request = (kvkeep_kv_plan_request){
      .size = sizeof request, .block_table = beyond, .block_count = 1, .tokens = 1};
  CHECK_CODE(kvkeep_kv_plan(planner, &request, &count, &error), KVKEEP_INVALID_ARGUMENT, &error);
  CHECK(strstr(error.message, "block_table[0]") != NULL);
  request.block_table = NULL;
  CHECK_CODE(kvkeep_kv_plan(planner, &request, &count, &error), KVKEEP_INVALID_ARGUMENT, &error);
  CHECK_CODE(kvkeep_kv_plan(NULL, &request, &count, &error), KVKEEP_INVALID_ARGUMENT, &error);
  CHECK_CODE(kvkeep_kv_plan(planner, &request, NULL, &error), KVKEEP_INVALID_ARGUMENT, &error);
  kvkeep_kv_planner_free(planner);
  kvkeep_kv_planner_free(NULL);
  CHECK(kvkeep_kv_planner_bytes_per_token(NULL) == 0);
}

// Two layers' pages of 64 bytes in 4 blocks, a block's together.
static const kvkeep_page_tensor pages = {7, 4096, 512, 2, 4, 64, 128, 64};

static kvkeep_page_planner* page_planner_of(uint32_t shards) {
  const kvkeep_page_layout layout = {sizeof layout, shards, &pages, 1, 0};
  kvkeep_page_planner* planner = NULL;
  CHECK_CODE(kvkeep_page_planner_create(&layout, &planner, &error), KVKEEP_OK, &error);
  CHECK(planner != NULL);
  return planner;
}

static void blocks_become_runs(void) {
  kvkeep_page_planner* planner = page_planner_of(1);
  CHECK(kvkeep_page_planner_bytes_per_block(planner) == 128);
  kvkeep_gpu_run runs[16];
  kvkeep_page_plan_request request = {.size = sizeof request,
                                      .blocks = table,
                                      .block_count = 3,
                                      .runs = runs,
                                      .room = 16};
  uint64_t count = 77;
  CHECK_CODE(kvkeep_page_plan(planner, &request, &count, &error), KVKEEP_OK, &error);
  CHECK(count == 2 && same(runs[0], 3 * 128, 128) && same(runs[1], 128, 256));
  request.room = 1;
  CHECK_CODE(kvkeep_page_plan(planner, &request, &count, &error), KVKEEP_OUT_OF_RANGE, &error);
  CHECK(count == 2 && strstr(error.message, "room") != NULL);
  kvkeep_page_planner_free(planner);
  planner = page_planner_of(2);
  CHECK(kvkeep_page_planner_bytes_per_block(planner) == 64);
  request.room = 16;
  request.shard = 1;
  request.block_count = 1;
  CHECK_CODE(kvkeep_page_plan(planner, &request, &count, &error), KVKEEP_OK, &error);
  CHECK(count == 2 && same(runs[0], 3 * 128 + 32, 32) && same(runs[1], 3 * 128 + 96, 32));
  kvkeep_page_planner_free(planner);
}

static void refuse_pages(kvkeep_page_layout layout, const char* words) {
  kvkeep_page_planner* planner = (kvkeep_page_planner*)&error;
  CHECK_CODE(kvkeep_page_planner_create(&layout, &planner, &error), KVKEEP_INVALID_ARGUMENT,
             &error);
  CHECK(planner == NULL);
  if (strstr(error.message, words) == NULL) check_failed(__FILE__, __LINE__, words, &error);
}

static void wrong_pages_are_named(void) {
  const kvkeep_page_layout good = {sizeof good, 1, &pages, 1, 0};
  kvkeep_page_layout layout = good;
  layout.tensors = NULL;
  refuse_pages(layout, "tensors");
  layout = good;
  layout.tensor_count = 0;
  refuse_pages(layout, "tensor_count");
  layout = good;
  layout.shards = 3;
  refuse_pages(layout, "tensors[0]: page_bytes is 64, shards are 3");
  kvkeep_page_tensor overlapping = pages;
  overlapping.block_stride = 127;
  layout = good;
  layout.tensors = &overlapping;
  refuse_pages(layout, "pages overlap");
  CHECK_CODE(kvkeep_page_planner_create(NULL, NULL, &error), KVKEEP_INVALID_ARGUMENT, &error);
  kvkeep_page_planner* planner = page_planner_of(1);
  const uint32_t beyond[] = {0, 4};
  kvkeep_page_plan_request request = {.size = sizeof request, .blocks = beyond, .block_count = 2};
  uint64_t count = 77;
  CHECK_CODE(kvkeep_page_plan(planner, &request, &count, &error), KVKEEP_INVALID_ARGUMENT, &error);
  CHECK(count == 0 && strstr(error.message, "blocks[1] is 4 of 4") != NULL);
  request.blocks = NULL;
  CHECK_CODE(kvkeep_page_plan(planner, &request, &count, &error), KVKEEP_INVALID_ARGUMENT, &error);
  CHECK_CODE(kvkeep_page_plan(NULL, &request, &count, &error), KVKEEP_INVALID_ARGUMENT, &error);
  CHECK_CODE(kvkeep_page_plan(planner, &request, NULL, &error), KVKEEP_INVALID_ARGUMENT, &error);
  kvkeep_page_planner_free(planner);
  kvkeep_page_planner_free(NULL);
  CHECK(kvkeep_page_planner_bytes_per_block(NULL) == 0);
}

int main(void) {
  static const test_case tests[] = {
      {"a table becomes runs", a_table_becomes_runs},
      {"steps tell of gaps", steps_tell_of_gaps},
      {"the canonical order is the same for every layout",
       the_canonical_order_is_the_same_for_every_layout},
      {"wrong layouts are named", wrong_layouts_are_named},
      {"wrong plans are named", wrong_plans_are_named},
      {"blocks become runs", blocks_become_runs},
      {"wrong pages are named", wrong_pages_are_named},
  };
  return RUN_TESTS(tests);
}
