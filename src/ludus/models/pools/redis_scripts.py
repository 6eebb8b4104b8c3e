"""The scripts of a model pool in Redis. Each runs as one step."""

from __future__ import annotations

__all__ = ["BEGIN", "CHANGES", "COMMIT", "REMOVE", "SET_ASIDE"]

BEGIN = """
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], unpack(ARGV, 2))
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1
"""
"""KEYS: the part. ARGV: when it expires, fields and values."""

COMMIT = """
local done = redis.call('GET', KEYS[4])
if done then
    redis.call('UNLINK', KEYS[1])
    return {done, ''}
end
if redis.call('EXISTS', KEYS[5]) == 0 then return redis.error_reply('LOST the pool') end
if redis.call('HLEN', KEYS[1]) ~= tonumber(ARGV[3]) then return redis.error_reply('TORN version') end
local number = ARGV[1]
if number == '' then
    number = string.format('%.0f', tonumber(redis.call('HGET', KEYS[3], 'last') or '-1') + 1)
end
local key = KEYS[5] .. ':v:' .. ARGV[4] .. ':' .. number
local digest = redis.call('HGET', key, 'digest')
if digest then
    redis.call('UNLINK', KEYS[1])
    if digest == ARGV[2] then return {number, ''} end
    return {number, digest}
end
redis.call('SET', KEYS[4], number, 'PX', ARGV[5])
redis.call('SADD', KEYS[6], ARGV[4])
redis.call('HINCRBY', KEYS[3], 'published', 1)
local last = tonumber(redis.call('HGET', KEYS[3], 'last') or '-1')
if tonumber(number) > last then redis.call('HSET', KEYS[3], 'last', number) end
redis.call('RENAME', KEYS[1], key)
redis.call('PERSIST', key)
redis.call('ZADD', KEYS[2], number, number)
return {number, ''}
"""
"""KEYS: the part, numbers, counts, done, the pool, models. ARGV: the number or '', digest, fields, model, ms.

The commands that a full server refuses are all refused, or none: it decides before the script begins. The first of
them is the first that writes, so a refusal changes nothing.
"""

REMOVE = """
local newest = redis.call('ZRANGE', KEYS[2], -1, -1)[1]
if newest == ARGV[1] then return 1 end
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('UNLINK', KEYS[1])
return 0
"""
"""KEYS: the version, numbers. ARGV: the number. 1: it is the newest and stays."""

SET_ASIDE = """
local newest = redis.call('ZRANGE', KEYS[3], -1, -1)[1]
if redis.call('ZREM', KEYS[3], ARGV[1]) == 0 then return 0 end
if newest == ARGV[1] then redis.call('HINCRBY', KEYS[4], 'rewinds', 1) end
if redis.call('EXISTS', KEYS[1]) == 1 then
    redis.call('RENAME', KEYS[1], KEYS[2])
    redis.call('PEXPIRE', KEYS[2], ARGV[2])
end
return 1
"""
"""KEYS: the version, where it is kept aside, numbers, counts. ARGV: the number, ms. 0: it was gone already."""

CHANGES = """
local counts = redis.call('HMGET', KEYS[1], 'published', 'rewinds')
return {counts[1] or '0', counts[2] or '0', redis.call('ZRANGE', KEYS[2], 0, -1)}
"""
"""KEYS: counts, numbers."""
