#!/bin/sh
# What User:CN=bill, O=the shop's needs to consume payments as group bil'ling; $(boom), its retries and its DLQ.
# sh FILE, or with what logs in: sh FILE --command-config admin.properties
# Kafka before 2.8 wants IdempotentWrite on the cluster, too.
# Delayed publishes come to payments by this group: where there are any, it needs Write on payments, too.
set -eu
kafka-acls.sh "$@" --bootstrap-server HOSTS --add --allow-principal 'User:CN=bill, O=the shop'\''s' --operation Read --operation DescribeConfigs --topic payments
kafka-acls.sh "$@" --bootstrap-server HOSTS --add --allow-principal 'User:CN=bill, O=the shop'\''s' --operation Read --operation Write --operation Delete --operation DescribeConfigs --topic payments.bil_27ling_3b_20_24_28boom_29.retry.10s
kafka-acls.sh "$@" --bootstrap-server HOSTS --add --allow-principal 'User:CN=bill, O=the shop'\''s' --operation Read --operation Write --operation Delete --operation DescribeConfigs --topic payments.bil_27ling_3b_20_24_28boom_29.retry
kafka-acls.sh "$@" --bootstrap-server HOSTS --add --allow-principal 'User:CN=bill, O=the shop'\''s' --operation Write --operation DescribeConfigs --topic payments.bil_27ling_3b_20_24_28boom_29.dlq
kafka-acls.sh "$@" --bootstrap-server HOSTS --add --allow-principal 'User:CN=bill, O=the shop'\''s' --operation Read --topic payments.bil_27ling_3b_20_24_28boom_29.control
kafka-acls.sh "$@" --bootstrap-server HOSTS --add --allow-principal 'User:CN=bill, O=the shop'\''s' --operation Read --group 'bil'\''ling; $(boom)'
