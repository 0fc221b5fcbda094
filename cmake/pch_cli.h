// The precompiled header of what reads a command line: pch_grpc.h, CLI11 and JSON.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cmake/pch_grpc.h"
