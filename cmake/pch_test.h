// The precompiled header of tests: pch.h and Catch2.
#pragma once

#include <catch2/catch.hpp>

#include "cmake/pch.h"
