// Assertions and the main of tests in C. A failed CHECK prints its place and ends the process, with
// any calls in flight. A test is a function; its name is a sentence.
#pragma once

#include <kvkeep.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition) \
  ((condition) ? (void)0 : check_failed(__FILE__, __LINE__, #condition, NULL))
// Checks a code; prints it with `error`'s message if it is not the expected one.
#define CHECK_CODE(code, expected, error) \
  ((code) == (expected) ? (void)0         \
                        : check_failed(__FILE__, __LINE__, #code " is " #expected, (error)))

static inline void check_failed(const char* file, int line, const char* what,
                                const kvkeep_error* error) {
  fprintf(stderr, "%s:%d: failed: %s\n", file, line, what);
  if (error != NULL) fprintf(stderr, "  %s: %s\n", kvkeep_code_name(error->code), error->message);
  _Exit(1);
}

typedef struct test_case {
  const char* name;
  void (*run)(void);
} test_case;

static inline int run_tests(const test_case* tests, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    fprintf(stderr, "[%zu/%zu] %s\n", i + 1, count, tests[i].name);
    tests[i].run();
  }
  fprintf(stderr, "%zu passed\n", count);
  return 0;
}
#define RUN_TESTS(tests) run_tests(tests, sizeof(tests) / sizeof((tests)[0]))
