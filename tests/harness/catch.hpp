// Catch2, version 2 or 3, under one name.
#pragma once
#ifdef TUTTI_CATCH2_V2
#include <catch2/catch.hpp>
#else
#include <catch2/catch_all.hpp>
#endif
