"""Working hours of a tenant's tasks, in the tenant's time zone, computed by Postgres.

An hour that a clock change skips does not exist, and one that repeats counts both times. Hours may pass midnight; equal
ones mean the whole day.
"""

# Needs: n, the tenant; wall.hour, the hour in its time zone.
IN_WORK_HOURS = """
CASE WHEN n.work_from < n.work_until THEN wall.hour >= n.work_from AND wall.hour < n.work_until
     WHEN n.work_from > n.work_until THEN wall.hour >= n.work_from OR wall.hour < n.work_until
     ELSE true END
"""

# Needs: t, the task. Gives: work.next_at, when it is worked on next: `work_at`, or the next start of the tenant's hours
# after it.
WITH_NEXT_WORK = f"""
CROSS JOIN LATERAL (
    SELECT CASE WHEN t.work_at IS NULL OR ({IN_WORK_HOURS}) THEN t.work_at
                ELSE (date_trunc('day', due.local) + n.work_from * interval '1 hour'
                      + CASE WHEN wall.hour >= n.work_from THEN interval '1 day' ELSE interval '0' END
                     ) AT TIME ZONE n.timezone
           END AS next_at
      FROM tenants n,
           LATERAL (SELECT GREATEST(t.work_at, now()) AT TIME ZONE n.timezone AS local) due,
           LATERAL (SELECT extract(hour FROM due.local)::int AS hour) wall
     WHERE n.id = t.tenant_id
) work
"""
